// Package manual writes manual pages from the model of a command line, so that
// help and manual come from one source.
package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Item is an entry of a section: a name and what is to be said of it.
type Item struct {
	Name string
	Text []string // paragraphs
}

// Section is one that does not come from the model.
type Section struct {
	Title string
	Items []Item
	Text  string // after the items
}

// Page describes a manual page.
type Page struct {
	App     *kong.Application
	Verb    *kong.Node // nil for the page of the whole command
	Version string
	// Sections follow those that come from the model.
	Sections []Section
}

// Name is the name of the page, such as "ingest-search".
func (p Page) Name() string {
	if p.Verb == nil {
		return p.App.Name
	}
	return p.App.Name + "-" + p.Verb.Name
}

// Write writes the page in roff, section 1.
func (p Page) Write(to io.Writer) error {
	w := &writer{}
	w.line(`.TH %s 1 "" %s "User Commands"`, quoted(strings.ToUpper(p.Name())), quoted(p.Version))
	w.line(".nh\n.ad l") // variables and flags are not broken at hyphens
	if p.Verb == nil {
		p.overview(w)
	} else {
		p.verb(w)
	}
	for _, s := range p.Sections {
		w.section(s.Title)
		for _, item := range s.Items {
			w.item(`\fB`+escaped(item.Name)+`\fR`, item.Text)
		}
		w.prose(s.Text)
	}
	p.seeAlso(w)
	_, err := io.WriteString(to, w.text.String())
	return err
}

// overview is the page of the whole command. The first paragraph of its
// description is the line below NAME.
func (p Page) overview(w *writer) {
	about, rest, _ := strings.Cut(p.App.Help, "\n\n")
	p.head(w, about)
	w.line(`.B %s`, escaped(p.App.Name))
	w.line(`[\fIcommand\fR] [\fIflags\fR] [\fIarguments\fR]`)
	w.section("DESCRIPTION")
	w.prose(rest)
	w.section("COMMANDS")
	for _, verb := range p.App.Children {
		if !verb.Hidden {
			w.item(`\fB`+escaped(summary(verb))+`\fR`, []string{verb.Help})
		}
	}
	w.section("OPTIONS")
	w.flags(p.App.Flags)
}

// summary is a verb with its arguments.
func summary(verb *kong.Node) string {
	words := []string{verb.Name}
	for _, arg := range verb.Positional {
		words = append(words, arg.Summary())
	}
	return strings.Join(words, " ")
}

func (p Page) verb(w *writer) {
	p.head(w, p.Verb.Help)
	w.line(`.B %s`, escaped(p.App.Name+" "+summary(p.Verb)))
	w.line(`[\fIflags\fR]`)
	w.section("DESCRIPTION")
	w.prose(p.Verb.Help)
	w.prose(p.Verb.Detail)
	if len(p.Verb.Positional) > 0 {
		w.section("ARGUMENTS")
	}
	for _, arg := range p.Verb.Positional {
		w.item(`\fI`+escaped(arg.Name)+`\fR`, []string{arg.Help})
	}
	if len(p.Verb.Flags) > 0 {
		w.section("OPTIONS")
		w.flags(p.Verb.Flags)
		w.prose("The options of every command are in " + p.App.Name + "(1).")
	}
}

func (p Page) head(w *writer, about string) {
	w.section("NAME")
	w.line(`%s \- %s`, escaped(p.Name()), escaped(strings.TrimSuffix(oneLine(about), ".")))
	w.section("SYNOPSIS")
}

func (p Page) seeAlso(w *writer) {
	w.section("SEE ALSO")
	var pages []string
	if p.Verb != nil {
		pages = append(pages, fmt.Sprintf(`\fB%s\fR(1)`, escaped(p.App.Name)))
	}
	for _, verb := range p.App.Children {
		if verb != p.Verb && !verb.Hidden {
			pages = append(pages, fmt.Sprintf(`\fB%s\fR(1)`, escaped(p.App.Name+"-"+verb.Name)))
		}
	}
	w.line("%s", strings.Join(pages, ", "))
}
