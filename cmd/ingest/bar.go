package main

import (
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Widths of the bar's line, in columns.
const (
	usualWidth  = 80 // of a terminal that does not say its own
	barWidth    = 40
	countsWidth = 60 // what stands beside the bar, at most
)

// newBar makes the progress bar of a terminal; nil for any other output, and
// for a terminal that cannot draw over a line.
func newBar(to io.Writer) *progressbar.ProgressBar {
	if !onTerminal(to) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	line := barLine{to.(*os.File)}
	return progressbar.NewOptions(-1, progressbar.OptionSetWriter(line), progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(min(barWidth, max(1, line.columns()-countsWidth))),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond))
}

// barLine writes lines that begin with a carriage return, no longer than the
// terminal is wide now: one that wraps cannot be drawn over.
type barLine struct{ terminal *os.File }

func (l barLine) columns() int {
	if width, _, err := term.GetSize(int(l.terminal.Fd())); err == nil && width > 0 {
		return width
	}
	return usualWidth
}

// Write cuts each line. The last column stays empty, since some terminals move
// to the next line after it.
func (l barLine) Write(p []byte) (int, error) {
	lines := strings.Split(string(p), "\r")
	for i, line := range lines {
		runes := []rune(line)
		lines[i] = string(runes[:min(len(runes), l.columns()-1)])
	}
	_, err := io.WriteString(l.terminal, strings.Join(lines, "\r"))
	return len(p), err
}

// rate is how many documents end in a time, in front of the bar. It is empty
// until there is a rate.
func rate(documents int, took time.Duration) string {
	perSecond := float64(documents) / took.Seconds()
	switch {
	case documents == 0 || took < time.Second:
		return ""
	case perSecond >= 1:
		return numberOf(int(math.Round(perSecond)), "document") + "/s "
	case perSecond >= 1.0/60:
		return numberOf(int(math.Round(perSecond*60)), "document") + "/min "
	}
	return "less than 1 document/min "
}
