package main

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/penstock-go/penstock/cmd/ingest/internal/complete"
)

// groups are the titles of the flag groups and of the verb groups, in help and
// manual.
var groups = kong.ExplicitGroups([]kong.Group{
	{Key: "common", Title: "State, output and logs:"},
	{Key: "object store", Title: "Object store:"},
	{Key: "vector store", Title: "Vector store:"},
	{Key: "model", Title: "Embedding model:"},
	{Key: "enrichment", Title: "Enrichment:"},
	{Key: "monitoring", Title: "Monitoring:"},
	{Key: "documents", Title: "Documents:"},
	{Key: "operation", Title: "Operation:"},
	{Key: "inspection", Title: "Looking into one file:"},
	{Key: "command", Title: "This command:"},
})

// newParser makes the parser of the command line.
func (a *app) newParser(ctx context.Context, flags *cli) (*kong.Kong, error) {
	return kong.New(flags, append(numbers(),
		kong.Name("ingest"),
		kong.Description(description),
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(int) { panic(answered{}) }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, FlagsLast: true}),
		groups,
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(a),
		kong.Resolvers(&a.file),
		kong.KindMapper(reflect.String, kong.MapperFunc(asWritten)),
		kong.Vars{"state": defaultState, "collection": defaultCollection, "bucket": defaultBucket},
	)...)
}

// answered is how --help and --version leave the parser.
type answered struct{}

// parse parses the command line; nil means that it has been answered already.
func (a *app) parse(parser *kong.Kong, args []string) (parsed *kong.Context, err error) {
	defer func() {
		switch left := recover().(type) {
		case nil:
		case answered:
			parsed, err = nil, nil
		default:
			panic(left)
		}
	}()
	return parser.Parse(args)
}

// command parses the command line and runs its verb.
func (a *app) command(ctx context.Context, args []string) error {
	var flags cli
	parser, err := a.newParser(ctx, &flags)
	if err != nil {
		return err
	}
	a.args = args
	if len(args) > 0 && (args[0] == complete.Request || args[0] == complete.RequestNames) {
		return a.complete(parser, args)
	}
	broken := a.file.find(args)
	parsed, err := a.parse(parser, args)
	if parsed == nil && err == nil {
		return nil
	}
	if err == nil && about[verb(parsed)] {
		return a.describe(parsed, &flags)
	}
	if err != nil {
		if own, described := a.unconfigured(ctx, args); described != nil {
			return a.describe(described, own)
		}
	}
	if wrong := a.unusable(parser, broken, err); wrong != nil {
		a.notBegun(ctx, parser, wrong)
		return wrong
	}
	a.parsed, a.settings, a.dry = parsed, &flags.Settings, flags.Run.DryRun
	a.paths = slices.Concat(flags.Run.Paths, flags.Serve.Paths)
	err = a.start()
	if err == nil {
		err = a.both(parsed.Run(&flags.Settings), a.stop())
	}
	a.ended(ctx, verb(parsed), err)
	return err
}

// about are the verbs that describe the command itself. They work whatever the
// configuration is.
var about = map[string]bool{"help": true, "completion": true, "version": true}

// describe runs a verb that describes the command itself.
func (a *app) describe(parsed *kong.Context, flags *cli) error {
	a.parsed, a.settings, a.log = parsed, &flags.Settings, a.newLogger(&flags.Settings)
	return parsed.Run(&flags.Settings)
}

// unconfigured parses a command line without the file and the environment, one
// of which is wrong; nil unless its verb describes the command itself.
func (a *app) unconfigured(ctx context.Context, args []string) (*cli, *kong.Context) {
	var flags cli
	parser, err := a.newParser(ctx, &flags)
	if err != nil {
		return nil, nil
	}
	withoutEnvironment(parser.Model.Node)
	a.file.values = nil
	parsed, err := a.parse(parser, args)
	if err != nil || parsed == nil || !about[verb(parsed)] {
		return nil, nil
	}
	return &flags, parsed
}

func withoutEnvironment(node *kong.Node) {
	for _, flag := range node.Flags {
		flag.Tag.Envs = nil
	}
	for _, child := range node.Children {
		withoutEnvironment(child)
	}
}

// verb is the verb of a command line.
func verb(parsed *kong.Context) string {
	if node := parsed.Selected(); node != nil {
		return node.Name
	}
	return ""
}

// asWritten keeps an argument's bytes, since file names need not be UTF-8; the
// parser's own mapper replaces invalid bytes by U+FFFD.
func asWritten(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	target.SetString(fmt.Sprint(token.Value))
	return nil
}

// numbers let a negative number follow its flag, as in --chunk-overlap -1; the
// parser's own mappers take it for a flag.
func numbers() []kong.Option {
	plain := kong.NewRegistry().RegisterDefaults()
	var options []kong.Option
	for _, kind := range []reflect.Type{
		reflect.TypeFor[int](), reflect.TypeFor[int64](), reflect.TypeFor[float64](),
	} {
		options = append(options, kong.KindMapper(kind.Kind(), negative(plain.ForType(kind))))
	}
	duration := reflect.TypeFor[time.Duration]()
	return append(options, kong.TypeMapper(duration, negative(plain.ForType(duration))))
}

var minus = regexp.MustCompile(`^-(\.?[0-9]|(?i:inf))`)

func negative(plain kong.Mapper) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		if next := ctx.Scan.Peek(); next.Type == kong.UntypedToken && minus.MatchString(next.String()) {
			ctx.Scan.PushTyped(ctx.Scan.Pop().Value, kong.FlagValueToken)
		}
		return plain.Decode(ctx, target)
	})
}
