//go:build !linux

package sqlitestore

// networkVolume cannot tell on this system.
func networkVolume(string) string { return "" }
