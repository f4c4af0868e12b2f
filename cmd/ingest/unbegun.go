package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// unusable is what is wrong with the command line or the configuration; nil if
// nothing is. broken is the error of the file, and err that of the parser.
func (a *app) unusable(parser *kong.Kong, broken, err error) error {
	if broken != nil {
		return broken
	}
	if _, coded := errors.AsType[*codedError](err); coded {
		return err
	}
	if err != nil {
		return a.explained(parser, err)
	}
	return a.file.unknown(parser.Model)
}

// notBegun delivers the result of a run whose command line or configuration is
// wrong. Where to deliver it is read from what there is of them.
func (a *app) notBegun(ctx context.Context, parser *kong.Kong, err error) {
	var s Settings
	for name, value := range map[string]*string{
		"pushgateway": &s.Pushgateway, "pushgateway-job": &s.PushgatewayJob, "metrics-textfile": &s.MetricsTextfile,
	} {
		*value = a.guessed(parser, name)
	}
	a.settings, a.log = &s, a.newLogger(&s)
	_, a.dry = a.argument("dry-run")
	a.ended(ctx, a.verbMeant(parser), err)
}

// guessed is the value of a setting, of which nothing is known to be right.
func (a *app) guessed(parser *kong.Kong, name string) string {
	if value, ok := a.argument(name); ok {
		return value
	}
	for _, flag := range parser.Model.Flags {
		if flag.Name != name {
			continue
		}
		if variable := environment(flag); variable != "" {
			return os.Getenv(variable)
		}
		if value, ok := a.file.values[name]; ok {
			return fmt.Sprint(value)
		}
		return flag.Default
	}
	return ""
}

// argument is the value of a flag on the command line.
func (a *app) argument(name string) (value string, ok bool) {
	for i, arg := range a.args {
		if arg == "--" {
			break
		}
		if given, found := strings.CutPrefix(arg, "--"+name+"="); found {
			value, ok = given, true
		}
		if arg == "--"+name {
			ok = true
			if i+1 < len(a.args) {
				value = a.args[i+1]
			}
		}
	}
	return value, ok
}

// verbMeant is the verb of a command line that cannot be parsed.
func (a *app) verbMeant(parser *kong.Kong) string {
	for _, arg := range a.args {
		if child(parser.Model.Node, arg) != nil {
			return arg
		}
	}
	return parser.Model.DefaultCmd.Name
}
