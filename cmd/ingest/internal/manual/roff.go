package manual

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

// writer collects lines of roff.
type writer struct {
	text   strings.Builder
	headed bool // the last line was a title, which begins a paragraph
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(&w.text, format+"\n", args...)
	w.headed = false
}

func (w *writer) section(title string) {
	w.line(".SH %s", quoted(title))
	w.headed = true
}

func (w *writer) paragraph() {
	if !w.headed {
		w.line(".PP")
	}
}

// item writes a label, which is roff already, and paragraphs below it.
func (w *writer) item(label string, paragraphs []string) {
	w.line(".TP")
	w.line("%s", label)
	for i, text := range paragraphs {
		if i > 0 {
			w.line(".br")
		}
		w.line("%s", escaped(oneLine(text)))
	}
}

// flags writes flags, those of a group below its title.
func (w *writer) flags(flags []*kong.Flag) {
	var titles []string
	grouped := map[string][]*kong.Flag{}
	for _, flag := range flags {
		if flag.Hidden {
			continue
		}
		title := ""
		if flag.Group != nil {
			title = strings.TrimSuffix(flag.Group.Title, ":")
		}
		if grouped[title] == nil {
			titles = append(titles, title)
		}
		grouped[title] = append(grouped[title], flag)
	}
	for _, title := range titles {
		if title != "" {
			w.line(".SS %s", quoted(title))
		}
		for _, flag := range grouped[title] {
			w.item(label(flag), []string{kong.DefaultHelpValueFormatter(flag.Value)})
		}
	}
}

func label(flag *kong.Flag) string {
	text := ""
	if flag.Short != 0 {
		text = `\fB\-` + string(flag.Short) + `\fR, `
	}
	text += `\fB\-\-` + escaped(flag.Name) + `\fR`
	if !flag.IsBool() {
		text += `=\fI` + escaped(flag.FormatPlaceHolder()) + `\fR`
	}
	return text
}

// prose writes paragraphs. One whose lines are indented is an example and kept
// as it is.
func (w *writer) prose(text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		switch {
		case strings.TrimSpace(paragraph) == "":
		case strings.HasPrefix(paragraph, "    "):
			w.paragraph()
			w.line(".RS 4\n.nf")
			for line := range strings.Lines(paragraph) {
				w.line("%s", escaped(strings.TrimSpace(line)))
			}
			w.line(".fi\n.RE")
		default:
			w.paragraph()
			w.line("%s", escaped(oneLine(paragraph)))
		}
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// quoted is an argument of a macro.
func quoted(text string) string { return `"` + escaped(text) + `"` }

// special are the characters that roff reads in ways of its own or prints as
// others, which a reader could not copy to a shell.
var special = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, `"`, `\(dq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`)

// escaped is text that roff prints as it is.
func escaped(text string) string {
	text = special.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	var out strings.Builder
	for _, r := range text {
		if r > unicode.MaxASCII {
			fmt.Fprintf(&out, `\[u%04X]`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// Wrap breaks a text into lines of at most width bytes, where its words allow.
func Wrap(text string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last < 0 || len(lines[last])+1+len(word) > width {
			lines = append(lines, word)
		} else {
			lines[last] += " " + word
		}
	}
	return lines
}
