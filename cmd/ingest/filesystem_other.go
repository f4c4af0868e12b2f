//go:build !linux

package main

// networkFileSystem returns "": detection is implemented on Linux only.
func networkFileSystem(string) string { return "" }
