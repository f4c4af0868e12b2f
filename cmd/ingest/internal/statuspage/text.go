package statuspage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/resilience"
)

// longest is how much of a name or an error is shown, in bytes.
const longest = 600

var userinfo = regexp.MustCompile(`://[^/@\s"']+@`)

// clean makes text safe to display: it masks passwords in addresses, replaces
// control and direction characters by spaces, and cuts long texts.
func clean(text string) string {
	text = userinfo.ReplaceAllString(text, "://********@")
	return plain.Shorten(plain.Line(text), longest)
}

// say is a state in words.
func say(s resilience.State) string { return strings.ReplaceAll(s.String(), "_", "-") }

// plural is a number with its noun.
func plural(n int, one, many string) string {
	return thousands(strconv.Itoa(n)) + " " + plain.Noun(n, one, many)
}

// noun is that of a count of any type, as templates have them.
func noun(count any, one, many string) string {
	n, _ := strconv.Atoi(fmt.Sprint(count)) // 0, which has many, if it is not a number
	return plain.Noun(n, one, many)
}

// thousands puts commas between the thousands of a number.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// round shortens a duration to what a person reads of a measurement.
func round(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return spell(d)
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// units are those of spell, largest first.
var units = []struct {
	length time.Duration
	name   string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}

// spell is a time in its two largest units, as the script has it.
func spell(d time.Duration) string {
	d = d.Round(time.Second)
	for i, u := range units {
		if d < u.length {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.length, u.name)
		if i+1 < len(units) && d%u.length >= units[i+1].length {
			text += fmt.Sprintf(" %d %s", d%u.length/units[i+1].length, units[i+1].name)
		}
		return text
	}
	return "0 s"
}

// due is when something comes, as the script has it.
func due(left time.Duration) string {
	if left <= 0 {
		return "due"
	}
	return "in " + spell((left + time.Second - 1).Truncate(time.Second))
}

// moment is a time as a sentence has it: with its date, unless it is less than
// half a day from now.
func moment(at, now time.Time) string {
	if d := now.Sub(at); d > 12*time.Hour || d < -12*time.Hour {
		return at.UTC().Format("2006-01-02 15:04")
	}
	return at.UTC().Format("15:04")
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
