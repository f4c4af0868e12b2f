package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/source"
)

// heldLines bounds how many lines wait to be sorted.
const heldLines = 10_000

// display shows the progress of a run: a bar on a terminal, a line for each
// failure, or JSON.
//
// Documents end in any order. Where results do not go to a terminal, their
// lines are held and sorted, so that two runs that do the same print the same.
// Deferred documents are grouped by reason and come last.
type display struct {
	app      *app
	drawing  sync.Mutex
	bar      *progressbar.ProgressBar // nil unless stderr is a terminal; see newBar
	counted  bool                     // the summary has the total; guarded by drawing
	began    time.Time                // the bar
	ended    int                      // documents that the bar has; guarded by drawing
	hold     bool
	held     []heldLine
	deferred deferrals
}

// heldLine is the line of one document.
type heldLine struct{ id, text string }

func newDisplay(a *app) *display {
	d := &display{app: a, hold: !onTerminal(a.output)}
	if a.settings.JSON {
		return d
	}
	if d.bar = newBar(a.stderr); d.bar != nil {
		d.began = time.Now()
		a.drawn.Store(d)
	}
	return d
}

// logWriter writes logs to stderr, clear of the bar that may be there.
type logWriter struct{ app *app }

func (w logWriter) Write(line []byte) (int, error) {
	d := w.app.drawn.Load()
	if d == nil {
		return w.app.stderr.Write(line)
	}
	d.drawing.Lock()
	defer d.drawing.Unlock()
	_ = d.bar.Clear() // a line of the log may begin beside the bar
	return w.app.stderr.Write(line)
}

// expect counts the documents of inputs in the background, so that the bar can
// show the total and the time left. Buckets are not listed twice: for them the
// bar shows a count.
func (d *display) expect(ctx context.Context, paths []string, find func() (*source.Inputs, error)) {
	if d.bar == nil || slices.ContainsFunc(paths, inBucket) {
		return
	}
	inputs, err := find()
	if err != nil {
		return // the run has found them and may find them again
	}
	d.count(ctx, inputs.All)
}

// count sets the total to the number of documents that a listing yields. A
// listing that hangs is abandoned at the end of the command.
func (d *display) count(ctx context.Context, list func(context.Context) iter.Seq2[source.Item, error]) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		total := 0
		for _, err := range list(ctx) {
			_ = err // one document that cannot be read is one that ends
			total++
		}
		if ctx.Err() == nil {
			d.total(total)
		}
	}()
	d.app.later(func() error { cancel(); return nil })
}

// total sets the number of documents of the run, once it is known. After the
// summary the bar is not drawn again: its line belongs to the shell.
func (d *display) total(documents int) {
	if documents == 0 {
		return
	}
	d.step(func(bar *progressbar.ProgressBar) error {
		if d.counted {
			return nil
		}
		bar.ChangeMax(documents)
		return bar.RenderBlank() // what ChangeMax has drawn may be suppressed
	})
}

func (d *display) document(doc pipeline.Document) {
	if d.app.settings.JSON {
		d.app.printJSON(doc)
		return
	}
	d.step(func(bar *progressbar.ProgressBar) error {
		d.ended++
		bar.Describe(rate(d.ended, time.Since(d.began)))
		return bar.Add(1)
	})
	name, ink := plain.Name(doc.ID), d.app.ink
	switch doc.Result {
	case pipeline.DeadLetter:
		d.line(doc.ID, fmt.Sprintf("%s  %s: %s (%s)", ink.bad("dead letter"), name, plain.Line(doc.Reason), doc.Stage))
	case pipeline.Deferred:
		d.deferred.add(doc)
	case pipeline.WouldIngest:
		d.line(doc.ID, fmt.Sprintf("%s  %s, %s", name, numberOf(doc.Chunks, "chunk"), numberOf(doc.Tokens, "token")))
	case pipeline.Deleted, pipeline.NotFound, pipeline.Gone:
		d.line(doc.ID, fmt.Sprintf("%s  %s", strings.ReplaceAll(string(doc.Result), "_", " "), name))
	case pipeline.Ingested, pipeline.Unchanged, pipeline.KnownDeadLetter, pipeline.Skipped: // --json lists them
	}
}

// line prints the line of a document, or holds it.
func (d *display) line(id, text string) {
	if !d.hold {
		d.step((*progressbar.ProgressBar).Clear)
		fmt.Fprintln(d.app.stdout, text)
		return
	}
	d.held = append(d.held, heldLine{id, text})
	if len(d.held) >= heldLines {
		d.release()
	}
}

// release prints the lines that are held.
func (d *display) release() {
	slices.SortStableFunc(d.held, func(a, b heldLine) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.text, b.text))
	})
	for _, line := range d.held {
		fmt.Fprintln(d.app.stdout, line.text)
	}
	d.held = nil
}

// step moves the bar, if there is one. A failure to draw it does not end the
// run.
func (d *display) step(move func(*progressbar.ProgressBar) error) {
	if d.bar == nil {
		return
	}
	d.drawing.Lock()
	err := move(d.bar)
	d.drawing.Unlock()
	if err != nil {
		d.app.log.Debug("progress bar", "error", err)
	}
}

func (d *display) summary(s pipeline.Summary) {
	d.step(func(bar *progressbar.ProgressBar) error {
		d.counted = true
		return bar.Finish()
	})
	d.app.audit.stopped(s)
	if d.app.settings.JSON {
		d.app.printJSON(map[string]pipeline.Summary{"summary": s})
		return
	}
	d.release()
	for _, line := range d.deferred.lines(s.Stopped) {
		fmt.Fprintf(d.app.stdout, "%s  %s\n", d.app.ink.warn("deferred"), line)
	}
	d.deferred = deferrals{}
	writeSummary(d.app.stdout, "", d.app.ink, s)
	d.advise(s.Stopped)
}

func (d *display) advise(stop *pipeline.Stop) {
	if advice := d.app.settings.advice(stop); advice != "" {
		fmt.Fprintln(d.app.stdout, "what to do: "+advice)
	}
}

// refuse writes that a verb did not begin, where it has no counts to show.
func (d *display) refuse(s pipeline.Summary) {
	d.app.audit.stopped(s)
	if d.app.settings.JSON {
		d.app.printJSON(map[string]pipeline.Summary{"summary": s})
		return
	}
	writeStop(d.app.stdout, "", d.app.ink, s)
	d.advise(s.Stopped)
}

// unopened writes a summary for a journal that cannot be opened now, so that an
// orchestrator finds the time to retry there.
func (d *display) unopened(ctx context.Context, err error) error {
	stop, ok := errors.AsType[*pipeline.StopError](err)
	if !ok {
		return err
	}
	summary := pipeline.Summary{Destination: d.app.destination(), Stopped: stop.Report(d.app.places())}
	summary.SetBreakers(stop, snapshots()...)
	d.app.countWaiting(ctx, &summary)
	if verb := verb(d.app.parsed); verb == "delete" || verb == "verify" {
		d.refuse(summary)
	} else {
		d.summary(summary)
	}
	unreached(stop)
	return &codedError{code: stopCode(stop)}
}
