package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// mistypedVerb returns an error if the first word of a command line without a
// verb is not a file and near the name of a verb: the words after it must not
// be ingested, since they may be what the user wanted to search for or delete.
func mistypedVerb(root *kong.Node, first string) error {
	if first == "" || strings.ContainsAny(first, `/\*?[{:@-.`) {
		return nil
	}
	near := nearest(first, verbs(root))
	if near == "" {
		return nil
	}
	if _, err := os.Lstat(first); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return usage(fmt.Errorf("%s: no such file or directory; did you mean '%s'? "+
		"('ingest run %[1]s' insists on the path)", first, near))
}

// implicit reports whether the command line names no verb.
func (a *app) implicit(paths []string) bool {
	const verb = "run"
	named := slices.DeleteFunc(slices.Clone(a.args), func(arg string) bool { return arg != verb })
	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return path != verb })
	return len(named) <= len(paths)
}

// explained adds to an error of the parser what the user may have meant.
func (a *app) explained(parser *kong.Kong, err error) error {
	failed, ok := errors.AsType[*kong.ParseError](err)
	if !ok || failed.Context == nil {
		return usage(err)
	}
	if len(a.args) > 0 && child(parser.Model.Node, a.args[0]) == nil {
		if mistyped := mistypedVerb(parser.Model.Node, a.args[0]); mistyped != nil {
			return mistyped
		}
	}
	if short := a.unknownShort(err); short != "" {
		return usage(errors.New(shortAdvice(parser.Model.Node, short)))
	}
	if strings.Contains(err.Error(), "did you mean") {
		return usage(err)
	}
	if flag := a.unknownFlag(err); flag != "" {
		if owners := verbsWith(parser.Model.Node, flag); len(owners) > 0 {
			return usage(fmt.Errorf("%w here; it is a flag of 'ingest %s'", err, strings.Join(owners, "', 'ingest ")))
		}
	}
	help := "ingest help"
	if node := failed.Context.Selected(); node != nil && slices.Contains(a.args, node.Name) {
		help += " " + node.Name
	}
	return usage(fmt.Errorf("%w; see '%s'", err, help))
}

// unknownFlag is the flag that an error of the parser is about.
func (a *app) unknownFlag(err error) string {
	for _, arg := range a.args {
		flag, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(flag, "--") && strings.HasSuffix(err.Error(), "unknown flag "+flag) {
			return strings.TrimPrefix(flag, "--")
		}
	}
	return ""
}

// unknownShort is the flag of one letter, with its dash, that an error of the
// parser is about. What the parser itself suggests is always the help.
func (a *app) unknownShort(err error) string {
	for _, arg := range a.args {
		if len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.Contains(err.Error(), "unknown flag "+arg[:2]) {
			return arg[:2]
		}
	}
	return ""
}

// shortAdvice says what was meant by a flag of one letter: that of a verb, or
// the only long flag that begins with the letter.
func shortAdvice(root *kong.Node, short string) string {
	text, letter := "unknown flag "+short, short[1:]
	for _, verb := range root.Children {
		if slices.ContainsFunc(verb.Flags, func(f *kong.Flag) bool { return string(f.Short) == letter }) {
			return fmt.Sprintf("%s here; it is a flag of 'ingest %s'", text, verb.Name)
		}
	}
	var long []string
	for _, flag := range root.Flags {
		if strings.HasPrefix(flag.Name, strings.ToLower(letter)) {
			long = append(long, flag.Name)
		}
	}
	if len(long) == 1 {
		return fmt.Sprintf("%s; did you mean \"--%s\"?", text, long[0])
	}
	return text + "; see 'ingest help'"
}

// verbsWith are the verbs that have a flag of their own.
func verbsWith(root *kong.Node, flag string) []string {
	var names []string
	for _, verb := range root.Children {
		if slices.ContainsFunc(verb.Flags, func(f *kong.Flag) bool { return f.Name == flag }) {
			names = append(names, verb.Name)
		}
	}
	return names
}
