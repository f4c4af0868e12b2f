package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-go/penstock/internal/netfs"
	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
	upstream "github.com/penstock-go/penstock/pipeline/service"
)

type doctorCmd struct {
	Wait time.Duration `default:"30s" env:"PENSTOCK_DOCTOR_WAIT" help:"How long to wait for the answers of each upstream, the chat model included (${default})."`
}

// Help describes the verb.
func (doctorCmd) Help() string {
	return `Looks at the state folder, the object store, the vector store, the embedding model, with --enrich the chat ` +
		`model, and with --shared the server of the circuit breakers. It writes nothing to them, but it closes the ` +
		`circuit breaker of an upstream that answers well. For each problem it prints the address that it tried and ` +
		`the remedy; the exit code is that of a run, and 75 for a server of --shared that does not answer.

` + exampleOf("ingest doctor", "ingest doctor --milvus milvus.internal:19530 --wait 5s")
}

// Run examines the state folder and the upstreams.
func (c *doctorCmd) Run(ctx context.Context, a *app) error {
	if c.Wait < shortestTimeout {
		return usage(fmt.Errorf("--wait: %s is too short; the minimum is %s", c.Wait, shortestTimeout))
	}
	worst := exitOK
	show := func(f pipeline.Finding, code int) {
		if worst == exitOK || code != exitOK && severity(code) > severity(worst) {
			worst = code
		}
		a.printFinding(f)
	}
	usable := a.examineState(ctx, c.Wait, show)
	well := map[string]bool{}
	err := c.upstreams(ctx, a, usable, func(f pipeline.Finding, code int) {
		if _, known := well[f.Upstream]; !known || !f.OK {
			well[f.Upstream] = f.OK
		}
		show(f, code)
	})
	if err == nil {
		err = a.examineBreakers(ctx, c.Wait, well, show)
	}
	if err != nil {
		return err
	}
	if worst == exitOK {
		return nil
	}
	return &codedError{code: worst}
}

// examineState looks at the state, and reports whether its folder can be
// written: the embedded stores need it.
func (a *app) examineState(ctx context.Context, wait time.Duration, show func(pipeline.Finding, int)) bool {
	if _, _, remote := a.settings.remoteState(); remote {
		ctx, cancel := context.WithTimeoutCause(ctx, wait, &pipeline.SilenceError{Waited: wait})
		defer cancel()
		finding, code := a.examineRemote(ctx)
		finding.Address = a.settings.stateAddress()
		if silent, ok := errors.AsType[*pipeline.SilenceError](context.Cause(ctx)); ok && !finding.OK {
			finding.Detail, code = silent.Error(), exitTemporary
		}
		show(finding, code)
	}
	if !a.settings.needsFolder() {
		return true
	}
	folder := a.examineFolder(ctx)
	code := exitOK
	if !folder.OK {
		code = exitFault
	}
	show(folder, code)
	return folder.OK
}

// standIn has an empty folder stand in for that of the embedded stores, which
// cannot be opened, so that the upstreams can be looked at all the same.
func (a *app) standIn() error {
	folder, err := os.MkdirTemp("", "ingest-doctor-")
	if err == nil {
		a.later(func() error { return os.RemoveAll(folder) })
		a.instead = folder
	}
	return err
}

// unopened reports whether an embedded store is not looked at: the finding of
// the state folder is about it.
func (a *app) unopened(name string) bool {
	return a.instead != "" && (name == upstream.ObjectStore && a.settings.S3Endpoint == "" ||
		name == upstream.VectorStore && a.settings.Milvus == "")
}

func (c *doctorCmd) upstreams(ctx context.Context, a *app, usable bool, show func(pipeline.Finding, int)) error {
	a.sayRedirected()
	config, err := a.upstreams(ctx)
	if err != nil && !usable {
		if err = a.standIn(); err == nil {
			config, err = a.upstreams(ctx)
		}
	}
	if err != nil {
		return err
	}
	if err := a.enrichment(&config); err != nil {
		return err
	}
	config.DoctorWait = c.Wait
	p, err := newPipeline(config)
	if err != nil {
		return err
	}
	for finding := range p.Findings(ctx) {
		if a.unopened(finding.Upstream) {
			continue
		}
		code := exitOK
		if finding.Upstream == upstream.Model {
			finding.Address = a.settings.modelAddress(finding.Chat)
		}
		if finding.Stop != nil {
			code = stopCode(finding.Stop)
			finding.Hint = a.settings.remedy(finding)
		}
		show(finding, code)
	}
	return nil
}

// stateAddress is that of the object store of a state in a bucket.
func (s *Settings) stateAddress() string {
	if s.S3Endpoint == "" || s.S3Endpoint == awsItself {
		return s.aws()
	}
	return publicAddress(s.S3Endpoint)
}

// askedModel is the model of a server that a finding is about, or empty.
func (s *Settings) askedModel(f pipeline.Finding) string {
	switch {
	case f.Upstream != upstream.Model || !f.Chat && s.LLMBaseURL == "":
		return ""
	case f.Chat:
		return s.EnrichModel
	}
	return s.EmbeddingModel
}

// modelAddress is that of one of the two models.
func (s *Settings) modelAddress(chat bool) string {
	if address := cmp.Or(s.ChatBaseURL, s.LLMBaseURL); chat {
		return publicAddress(address)
	}
	if s.LLMBaseURL == "" {
		return embedded
	}
	return publicAddress(s.LLMBaseURL)
}

// severity orders exit codes as a run does: 1, then 78, 77, 75.
func severity(code int) int {
	if code == exitFault {
		return exitSignal
	}
	return code
}

// examineFolder checks that the state folder can be written, and the journal in
// it read.
func (a *app) examineFolder(ctx context.Context) pipeline.Finding {
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
	if err := a.examineJournal(ctx); err != nil {
		finding.Detail = err.Error()
		finding.Hint = "move the journal away and run again: what is complete is found in the stores"
		return finding
	}
	return pipeline.Finding{Upstream: finding.Upstream, OK: true, Detail: absolute + " is writable"}
}

// examineJournal reads the journal of the state folder, if there is one.
func (a *app) examineJournal(ctx context.Context) error {
	if _, _, remote := a.settings.remoteState(); remote {
		return nil
	}
	j, err := journal.OpenReadOnly(ctx, a.settings.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = j.Totals(ctx, a.destination())
	return errors.Join(err, j.Close())
}

func (a *app) printFinding(f pipeline.Finding) {
	if a.settings.JSON {
		a.printJSON(f)
		return
	}
	mark, address := a.ink.good("ok   "), ""
	if !f.OK {
		mark = a.ink.bad("FAIL ")
	}
	if f.Address != "" && !a.settings.embeds(f) {
		address = "tried " + f.Address + after(", model ", a.settings.askedModel(f))
		if f.OK {
			address = "at " + f.Address
		}
	}
	name := f.Upstream
	if f.Chat {
		name = "chat"
	}
	fmt.Fprintf(a.stdout, "%s %-7s %s\n", mark, name, localTimes(plain.Line(f.Detail)))
	for _, more := range []string{address, f.Hint} {
		if more != "" {
			fmt.Fprintf(a.stdout, "              %s\n", plain.Line(more))
		}
	}
}
