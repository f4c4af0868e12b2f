package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/penstock-go/penstock/internal/plain"
)

// defaultConfigFile is read if it exists and no other file is named.
const defaultConfigFile = "penstock.yaml"

// configFile is the YAML configuration: a flat map from flag names to values.
type configFile struct {
	path   string
	values map[string]any
}

// find reads the file that the command line or the environment names, before
// the command line is parsed for good.
func (c *configFile) find(args []string) error {
	c.path = os.Getenv("PENSTOCK_CONFIG")
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--config="); ok {
			c.path = value
		} else if arg == "--config" && i+1 < len(args) {
			c.path = args[i+1]
		}
	}
	named := c.path != ""
	if !named {
		c.path = defaultConfigFile
	}
	content, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		c.path = ""
		return nil
	}
	if err == nil {
		err = decode(content, &c.values)
	}
	if err != nil {
		return configuration(fmt.Errorf("configuration file %s: %w", c.path, err))
	}
	return nil
}

// decode returns errors without the surrounding lines, which may hold secrets.
func decode(content []byte, values *map[string]any) error {
	if err := yaml.Unmarshal(content, values); err != nil {
		return errors.New(yaml.FormatError(err, false, false))
	}
	return nil
}

// Validate is part of kong.Resolver.
func (c *configFile) Validate(*kong.Application) error { return nil }

// Resolve returns the file's value for a flag. The environment takes
// precedence.
func (c *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := c.values[flag.Name]
	if !ok || environment(flag) != "" {
		return nil, nil
	}
	fitting, err := fit(flag, value)
	if err != nil {
		return nil, configuration(fmt.Errorf("configuration file %s: %s: %w", c.path, flag.Name, err))
	}
	return fitting, nil
}

// truth matches what the flag parser accepts as a boolean.
var truth = regexp.MustCompile(`^(?i:true|1|yes|false|0|no)$`)

// fit converts a value of the file to what the flag's parser expects. Values
// may be secrets, so errors do not quote them.
func fit(flag *kong.Flag, value any) (any, error) {
	fields, isMap := value.(map[string]any)
	_, isList := value.([]any)
	_, isText := value.(string)
	switch wantsMap := flag.Target.Kind() == reflect.Map; {
	case isMap != wantsMap && value != nil || isList:
		return nil, errors.New(wrongShape(wantsMap))
	case isMap:
		texts := make(map[string]any, len(fields))
		for key, field := range fields {
			texts[key] = fmt.Sprint(field)
		}
		return texts, nil
	case value == nil:
		return nil, nil
	case flag.Target.CanInt() && flag.Target.Type() != reflect.TypeFor[time.Duration]():
		return value, scalar[int64](value, "must be a whole number")
	case flag.Target.CanFloat():
		return value, scalar[float64](value, "must be a number")
	case flag.Target.Kind() == reflect.Bool && !truth.MatchString(fmt.Sprint(value)):
		return nil, errors.New("must be true or false")
	case isText || flag.Target.Kind() == reflect.Bool:
		return value, nil
	case flag.Target.Type() == reflect.TypeFor[time.Duration]():
		return nil, fmt.Errorf("%v has no unit; write %vs for seconds", value, value)
	case flag.Target.Kind() == reflect.String:
		return nil, errors.New("must be a string; put it in quotes")
	}
	return value, nil
}

func wrongShape(wantsMap bool) string {
	if wantsMap {
		return "must be a map"
	}
	return "must be a single value"
}

// scalar returns an error with the given text unless the value is a T.
func scalar[T any](value any, wrong string) error {
	var fits T
	if yaml.Unmarshal(fmt.Append(nil, value), &fits) != nil {
		return errors.New(wrong)
	}
	return nil
}

// unknown refuses names in the file that are not flags: a typo must not send
// documents to the wrong place.
func (c *configFile) unknown(app *kong.Application) error {
	known := flagNames(app.Node)
	for _, name := range slices.Sorted(maps.Keys(c.values)) {
		if known[name] {
			continue
		}
		advice := "settings are flag names without the leading dashes"
		if near := nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
			advice = fmt.Sprintf("did you mean %q?", near)
		}
		return configuration(fmt.Errorf("configuration file %s: unknown setting %q; %s", c.path, name, advice))
	}
	return nil
}

// answers are the flags that print something and end the command. They are no
// settings.
var answers = map[string]bool{"help": true, "version": true}

func flagNames(node *kong.Node) map[string]bool {
	names := map[string]bool{}
	for _, flag := range node.Flags {
		if !answers[flag.Name] {
			names[flag.Name] = true
		}
	}
	for _, child := range node.Children {
		for name := range flagNames(child) {
			names[name] = true
		}
	}
	return names
}

// environment returns the environment variable that sets a flag, or "".
func environment(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return name
		}
	}
	return ""
}

// sourceCommandLine is the source of a setting.
const sourceCommandLine = "command line"

// setting is one line of "ingest config".
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

type configCmd struct{}

// Run prints every setting.
func (configCmd) Run(a *app) error {
	for _, s := range a.settingsInForce() {
		if a.settings.JSON {
			a.printJSON(s)
			continue
		}
		fmt.Fprintf(a.stdout, "%-18s %-40s # %s\n", s.Name, plain.Name(s.Value), plain.Name(s.Source))
	}
	return nil
}

func (a *app) settingsInForce() []setting {
	given := a.given()
	var list []setting
	for _, flag := range a.parsed.Model.Flags {
		if answers[flag.Name] {
			continue
		}
		list = append(list, setting{Name: flag.Name, Value: shown(flag), Source: a.sourceOf(flag, given)})
	}
	return list
}

// given are the flags of the command line.
func (a *app) given() map[string]bool {
	given := map[string]bool{}
	for _, path := range a.parsed.Path {
		if path.Flag != nil && !path.Resolved {
			given[path.Flag.Name] = true
		}
	}
	return given
}

func (a *app) sourceOf(flag *kong.Flag, given map[string]bool) string {
	_, inFile := a.file.values[flag.Name]
	switch variable := environment(flag); {
	case given[flag.Name]:
		return sourceCommandLine
	case variable != "":
		return "environment, " + variable
	case inFile:
		return "file " + a.file.path
	}
	return "default"
}

// shown is a flag's value as displayed, with secrets masked.
func shown(flag *kong.Flag) string {
	value := fmt.Sprint(flag.Target.Interface())
	if flag.Tag.Has("secret") && !flag.Target.IsZero() {
		return "********"
	}
	if flag.Target.Kind() == reflect.Map && flag.Target.Len() == 0 {
		return ""
	}
	return maskUserinfo(value)
}

// queryValue matches the value of a URL parameter.
var queryValue = regexp.MustCompile(`([?&][^=&#]*=)[^&#]*`)

// maskUserinfo masks the parts of a URL that may be secret: userinfo and the
// values of query parameters.
func maskUserinfo(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		return value
	}
	rest = queryValue.ReplaceAllString(rest, "$1********")
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	at := strings.LastIndex(host, "@")
	if at < 0 {
		return scheme + "://" + rest
	}
	return scheme + "://********@" + rest[at+1:]
}
