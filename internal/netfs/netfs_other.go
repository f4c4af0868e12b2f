//go:build !linux

package netfs

// Name is "": detection is implemented on Linux only.
func Name(string) string { return "" }
