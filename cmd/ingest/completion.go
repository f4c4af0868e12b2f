package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/penstock-go/penstock/cmd/ingest/internal/complete"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"bash, zsh, fish or powershell."`
}

// Help describes the verb.
func (completionCmd) Help() string {
	return `Verbs, flags, their values, files and folders are completed by the installed version of ingest, so the script need ` +
		`not change with it. Bash needs the package bash-completion.

` + exampleOf(
		"bash:        ingest completion bash > ~/.local/share/bash-completion/completions/ingest",
		"zsh:         ingest completion zsh > \"${fpath[1]}/_ingest\"",
		"fish:        ingest completion fish > ~/.config/fish/completions/ingest.fish",
		"PowerShell:  ingest completion powershell | Out-String | Invoke-Expression")
}

// Run prints the script.
func (c *completionCmd) Run(a *app) error {
	if err := complete.Script(a.stdout, c.Shell, "ingest"); err != nil {
		return fmt.Errorf("completion for %s: %w", c.Shell, err)
	}
	return nil
}

// complete answers a completion script. What cannot be completed is not an
// error, since its text would stand in the user's command line.
func (a *app) complete(parser *kong.Kong, args []string) error {
	answer := complete.For(parser.Model, args[1:], func(verb string, given []string, begun string) complete.Answer {
		return argumentsOf(parser.Model.Node, verb, given, begun)
	})
	return answer.Write(a.stdout, args[0] == complete.Request)
}

// argumentsOf says what may stand as the next argument of a verb.
func argumentsOf(root *kong.Node, verb string, given []string, begun string) complete.Answer {
	switch first := len(given) == 0; {
	case verb == "run" || verb == "serve" || verb == "delete":
		return complete.Answer{Files: true}
	case (verb == "parse" || verb == "chunk") && first:
		return complete.Answer{Files: true}
	case verb == "help" && first:
		return complete.Of(begun, append(verbs(root), slices.Sorted(maps.Keys(topics))...)...)
	case verb == "completion" && first:
		return complete.Of(begun, complete.Shells...)
	}
	return complete.Answer{}
}
