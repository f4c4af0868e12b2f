package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-go/penstock/internal/netfs"
	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
)

type doctorCmd struct{}

// Run examines the state folder and the three upstreams.
func (doctorCmd) Run(ctx context.Context, a *app) error {
	worst := exitOK
	show := func(f pipeline.Finding, code int) {
		if worst == exitOK || code != exitOK && severity(code) > severity(worst) {
			worst = code
		}
		a.printFinding(f)
	}
	if _, _, remote := a.settings.remoteState(); remote {
		show(a.examineRemote(ctx))
	}
	if a.settings.needsFolder() {
		folder := a.examineFolder()
		code := exitOK
		if !folder.OK {
			code = exitFault
		}
		show(folder, code)
		if !folder.OK {
			return &codedError{code: worst}
		}
	}
	config, err := a.upstreams(ctx)
	if err != nil {
		return err
	}
	if err := a.enrichment(&config); err != nil {
		return err
	}
	p, err := pipeline.New(config)
	if err != nil {
		return configuration(err)
	}
	for _, finding := range p.Doctor(ctx) {
		code := exitOK
		if finding.Stop != nil {
			code = stopCode(finding.Stop)
		}
		show(finding, code)
	}
	if worst == exitOK {
		return nil
	}
	return &codedError{code: worst}
}

// severity orders exit codes as a run does: 1, then 78, 77, 75.
func severity(code int) int {
	if code == exitFault {
		return exitSignal
	}
	return code
}

// examineFolder checks that the state folder is usable.
func (a *app) examineFolder() pipeline.Finding {
	finding := pipeline.Finding{Upstream: "state", Hint: "set --state to a writable folder on a local disk"}
	if _, _, remote := a.settings.remoteState(); remote {
		finding = pipeline.Finding{
			Upstream: "folder",
			Hint:     "the embedded stores need it: change to a writable directory, or use real stores",
		}
	}
	err := os.MkdirAll(a.folder(), 0o750)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(a.folder(), "doctor-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		finding.Detail = err.Error()
		return finding
	}
	absolute, err := filepath.Abs(a.folder())
	if err != nil {
		finding.Detail = err.Error()
		return finding
	}
	if kind := netfs.Name(absolute); kind != "" {
		finding.Detail = absolute + " is on " + kind + ", where SQLite's file locks are unreliable"
		return finding
	}
	return pipeline.Finding{Upstream: finding.Upstream, OK: true, Detail: absolute + " is writable"}
}

func (a *app) printFinding(f pipeline.Finding) {
	if a.settings.JSON {
		a.printJSON(f)
		return
	}
	mark := a.ink.good("ok   ")
	if !f.OK {
		mark = a.ink.bad("FAIL ")
	}
	fmt.Fprintf(a.stdout, "%s %-7s %s\n", mark, f.Upstream, plain.Line(f.Detail))
	if f.Hint != "" {
		fmt.Fprintf(a.stdout, "              %s\n", plain.Text(f.Hint))
	}
}
