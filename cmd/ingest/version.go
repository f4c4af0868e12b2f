package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/penstock-go/penstock/llm/staticmodel"
)

// build is what a binary was built from.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the commit; empty if unknown
	Go       string `json:"go"`       // version of the toolchain
	Model    string `json:"model"`    // the built-in model

	modified bool // the tree differed from the commit
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{
		Version: cmp.Or(info.Main.Version, "unknown"), Go: cmp.Or(info.GoVersion, runtime.Version()),
		Model: staticmodel.Name,
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	commit := cmp.Or(b.Revision, "unknown")
	if b.modified {
		commit += ", modified"
	}
	return fmt.Sprintf("ingest %s (commit %s; %s)", b.Version, commit, b.Go)
}

type versionCmd struct{}

// Help describes the verb.
func (versionCmd) Help() string {
	return "The version, the commit and the Go version of this build. With --json also the name of the built-in model."
}

// Run prints the version of this build.
func (versionCmd) Run(a *app) error {
	a.printVersion(a.settings.JSON)
	return nil
}

func (a *app) printVersion(asJSON bool) {
	if b := thisBuild(); asJSON {
		a.printJSON(b)
	} else {
		fmt.Fprintln(a.stdout, b)
	}
}

// versionFlag is --version, which answers before anything else is looked at.
type versionFlag bool

// IgnoreDefault is part of kong's interface of flags that answer.
func (versionFlag) IgnoreDefault() {}

// BeforeReset is a hook of the parser.
func (versionFlag) BeforeReset(parsed *kong.Context, a *app) error {
	asJSON := false
	for _, flag := range parsed.Flags() {
		if flag.Name == "json" {
			asJSON, _ = parsed.FlagValue(flag).(bool)
		}
	}
	a.printVersion(asJSON)
	parsed.Exit(exitOK)
	return nil
}
