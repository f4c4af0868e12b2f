package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/penstock-go/penstock/cmd/ingest/internal/manual"
)

// manual prints a manual page.
func (c *helpCmd) manual(a *app, parser *kong.Kong) error {
	var verb *kong.Node
	if c.Topic != "" && topics[c.Topic] == nil {
		if verb = child(parser.Model.Node, c.Topic); verb == nil {
			return c.unknown(parser)
		}
	}
	return manualPage(parser, verb).Write(a.stdout)
}

// writeManual writes all manual pages to a folder, which it makes if needed.
func writeManual(dir string, parser *kong.Kong) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--man-dir: %w", err)
	}
	for _, verb := range append([]*kong.Node{nil}, parser.Model.Children...) {
		if verb != nil && verb.Hidden {
			continue
		}
		var text bytes.Buffer
		page := manualPage(parser, verb)
		err := page.Write(&text)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, page.Name()+".1"), text.Bytes(), 0o644)
		}
		if err != nil {
			return fmt.Errorf("--man-dir: %w", err)
		}
	}
	return nil
}

// manualPage is the page of a verb, or of the whole command for nil.
func manualPage(parser *kong.Kong, verb *kong.Node) manual.Page {
	page := manual.Page{App: parser.Model, Verb: verb, Version: "ingest " + thisBuild().Version}
	if verb == nil {
		page.Sections = sections(parser)
	}
	return page
}

// sections are those of the page of the whole command.
func sections(parser *kong.Kong) []manual.Section {
	codes := manual.Section{Title: "EXIT STATUS", Text: exitPrecedence}
	for _, m := range exitMeanings {
		codes.Items = append(codes.Items, manual.Item{Name: m.code, Text: []string{m.meaning, "Run again? " + m.again}})
	}
	environment := manual.Section{Title: "ENVIRONMENT", Text: awsVariables}
	flags := map[string]*kong.Flag{}
	collectFlags(parser.Model.Node, flags)
	for _, variable := range slices.Sorted(maps.Keys(flags)) {
		text := fmt.Sprintf("As --%s.", flags[variable].Name)
		environment.Items = append(environment.Items, manual.Item{Name: variable, Text: []string{text}})
	}
	return []manual.Section{codes, environment, {Title: "FILES", Items: []manual.Item{
		{Name: defaultState + "/", Text: []string{"Journal and embedded stores; another folder: --state."}},
		{Name: defaultConfigFile, Text: []string{
			"Configuration in the working folder, a flat map of flag names without the leading dashes; another file: --config.",
		}},
	}}}
}

// exampleOf joins the lines of an example to a text of help.
func exampleOf(lines ...string) string { return "    " + strings.Join(lines, "\n    ") }
