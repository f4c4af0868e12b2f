package main

import (
	"io"
	"os"
)

// ink colors words on a terminal, so that a reader finds what matters. Its zero
// value does not.
type ink bool

// The values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// inkFor is the ink for an output. By default only a terminal gets colors,
// unless NO_COLOR is set (https://no-color.org) or it is a dumb one.
func inkFor(color string, to io.Writer) ink {
	switch color {
	case colorAlways:
		return true
	case colorNever:
		return false
	}
	return ink(onTerminal(to) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (i ink) bad(text string) string  { return i.with("31;1", text) }
func (i ink) warn(text string) string { return i.with("33", text) }
func (i ink) good(text string) string { return i.with("32", text) }

// with wraps a text in a style of ECMA-48.
func (i ink) with(style, text string) string {
	if !i {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
