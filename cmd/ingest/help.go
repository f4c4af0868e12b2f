package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/penstock-go/penstock/cmd/ingest/internal/manual"
)

const description = `Ingests documents into an object store and a vector store, and searches them.

Without configuration everything stays in the folder .penstock: originals as files, chunks and vectors in SQLite, ` +
	`embeddings from a model inside the binary. --s3-endpoint, --milvus and --llm-base-url switch each of the three to ` +
	`a real upstream.

    ingest README.md docs/
    ingest search "when does the breaker open?"
    ingest status
    ingest help exit-codes

Flags take precedence over environment variables, and those over the configuration file. A path that has the name ` +
	`of a command needs a folder in front of it: ./help.`

type helpCmd struct {
	Topic  string `arg:"" optional:"" name:"topic" help:"A command, exit-codes or environment. Default: an overview."`
	Man    bool   `help:"Print a manual page in roff: of the topic if it is a command, otherwise of ingest."`
	ManDir string `name:"man-dir" placeholder:"DIR" help:"Write the manual pages of ingest and of each command to this folder."`
}

// Help describes the verb.
func (helpCmd) Help() string {
	return exampleOf("ingest help search", "ingest help exit-codes", "ingest help --man | man -l -")
}

// topics are what 'ingest help' explains beside the commands.
var topics = map[string]func(*app, *kong.Kong){
	"exit-codes":  (*app).printExitCodes,
	"environment": (*app).printEnvironment,
}

// Run prints help.
func (c *helpCmd) Run(ctx context.Context, a *app) error {
	parser, err := a.newParser(ctx, &cli{})
	if err != nil {
		return err
	}
	switch {
	case c.ManDir != "":
		return writeManual(c.ManDir, parser)
	case c.Man:
		return c.manual(a, parser)
	}
	if print, ok := topics[c.Topic]; ok {
		print(a, parser)
		return nil
	}
	words := []string{}
	if c.Topic != "" {
		if child(parser.Model.Node, c.Topic) == nil {
			return c.unknown(parser)
		}
		words = append(words, c.Topic)
	}
	_, err = a.parse(parser, append(words, "--help"))
	return err
}

func child(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name && !c.Hidden {
			return c
		}
	}
	return nil
}

func (c *helpCmd) unknown(parser *kong.Kong) error {
	names := append(verbs(parser.Model.Node), slices.Sorted(maps.Keys(topics))...)
	err := fmt.Errorf("no help on %q; choose from %s", c.Topic, strings.Join(names, ", "))
	if near := nearest(c.Topic, names); near != "" {
		err = fmt.Errorf("no help on %q; did you mean %q?", c.Topic, near)
	}
	return usage(err)
}

// verbs are the names of the commands.
func verbs(root *kong.Node) []string {
	var names []string
	for _, c := range root.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

func (a *app) printExitCodes(*kong.Kong) {
	for _, m := range exitMeanings {
		a.printTopic(m.code, m.meaning, "Run again? "+m.again)
	}
	fmt.Fprintln(a.stdout, exitPrecedence)
}

// printEnvironment lists the variables of all flags, each with its flag.
func (a *app) printEnvironment(parser *kong.Kong) {
	flags := map[string]*kong.Flag{}
	collectFlags(parser.Model.Node, flags)
	for _, variable := range slices.Sorted(maps.Keys(flags)) {
		a.printTopic(variable, "--"+flags[variable].Name+": "+flags[variable].Help)
	}
	fmt.Fprintln(a.stdout, awsVariables)
}

const awsVariables = "The object store also takes AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and " +
	"AWS_PROFILE, as the tools of AWS do."

func collectFlags(node *kong.Node, flags map[string]*kong.Flag) {
	for _, flag := range node.Flags {
		for _, variable := range flag.Envs {
			flags[variable] = flag
		}
	}
	for _, c := range node.Children {
		collectFlags(c, flags)
	}
}

// printTopic prints a name and, below it, what is to be said of it.
func (a *app) printTopic(name string, about ...string) {
	fmt.Fprintln(a.stdout, name)
	for _, text := range about {
		for _, line := range manual.Wrap(text, 74) {
			fmt.Fprintln(a.stdout, "    "+line)
		}
	}
	fmt.Fprintln(a.stdout)
}
