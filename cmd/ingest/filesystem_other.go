//go:build !linux

package main

// networkFileSystem names the network file system that a folder is on; here it
// cannot tell.
func networkFileSystem(string) string { return "" }
