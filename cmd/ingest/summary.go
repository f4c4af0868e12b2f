package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
)

// writeSummary writes a summary for people, each line after the indent.
func writeSummary(w io.Writer, indent string, ink ink, s pipeline.Summary) {
	line := func(format string, args ...any) { fmt.Fprintf(w, indent+format+"\n", args...) }
	switch {
	case s.WouldIngest > 0:
		line("would ingest %d documents: %d chunks, %d tokens; %d unchanged, %d dead letters",
			s.WouldIngest, s.Chunks, s.Tokens, s.Unchanged, s.DeadLetters)
	case s.Deleted+s.NotFound > 0:
		line("%d documents deleted (%d chunks), %d not found, %d deferred", s.Deleted, s.Removed,
			s.NotFound, s.Deferred)
		if s.OriginalsLeft > 0 {
			line("%d originals left: their keys do not say which collections need them; once 'ingest verify --repair' has "+
				"run for each collection of the bucket, remove the folders below originals/ whose names have 64 digits",
				s.OriginalsLeft)
		}
	default:
		writeCounts(line, s)
	}
	writeWaiting(line, s)
	if s.Stopped != nil {
		line("%s", ink.bad(plain.Line(stopLine(s.Stopped))))
	}
}

func writeCounts(line func(format string, args ...any), s pipeline.Summary) {
	line("%d documents in %s: %d ingested (%d chunks, %d embedded), %d unchanged, %d dead letters, %d deferred",
		s.Documents, s.Elapsed.Round(time.Millisecond), s.Ingested, s.Chunks, s.Embedded, s.Unchanged,
		s.DeadLetters, s.Deferred)
	if s.KnownDeadLetters > 0 {
		line("%d known dead letters are unchanged; 'ingest status' lists them, 'ingest retry' tries them again",
			s.KnownDeadLetters)
	}
	writeSilent(line, s)
	writeEnrichment(line, s)
}

// writeWaiting reports the documents that wait for an upstream.
func writeWaiting(line func(format string, args ...any), s pipeline.Summary) {
	if s.Waiting == 0 {
		return
	}
	least, since := "", ""
	if s.WaitingAtLeast {
		least = "at least "
	}
	if s.WaitingSince != nil {
		since = ", some since " + clock(*s.WaitingSince)
	}
	line("%s%d documents wait to be ingested%s", least, s.Waiting, since)
}

// writeSilent reports what was found and was no document.
func writeSilent(line func(format string, args ...any), s pipeline.Summary) {
	if s.Skipped > 0 {
		line("%d files skipped: empty, or never text, such as images; --json lists them", s.Skipped)
	}
	if s.Gone > 0 {
		line("%d documents gone; --prune deletes what was ingested of them", s.Gone)
	}
	for _, input := range s.EmptyInputs {
		line("nothing to ingest in %s", plain.Name(input))
	}
}

// writeEnrichment reports the tokens spent on enrichment, and what is missing.
func writeEnrichment(line func(format string, args ...any), s pipeline.Summary) {
	if s.ChatTokens > 0 {
		line("%d tokens spent on enrichment, %d unusable answers", s.ChatTokens, s.Unanswered)
	}
	if s.Unenriched > 0 {
		line(
			"%d documents are not fully enriched (budget spent, or no answer in time); the next run with --enrich continues",
			s.Unenriched,
		)
	}
}

// stopLine says why a run ended early. The upstream's own words come last,
// where they remain on the screen.
func stopLine(stop *pipeline.Stop) string {
	reason := stop.Reason
	if stop.Cause != "" {
		reason = withoutCause(reason, stop.Cause)
	}
	line := "stopped (" + string(stop.Kind) + after(", ", stop.Upstream) + after(" at ", stop.Address) +
		after(", model ", stop.Model) + ")" + after(": ", reason)
	if stop.RetryAt != nil {
		line += "; run again after " + clock(*stop.RetryAt)
	}
	return line + after("; cause: ", stop.Cause)
}

// after puts words before a text, unless that is empty.
func after(words, text string) string {
	if text == "" {
		return ""
	}
	return words + text
}

// withoutCause is a reason without the cause at its end, which is printed
// after it. A cause that begins within a phrase stays: the phrase needs it.
func withoutCause(reason, cause string) string {
	rest, ok := strings.CutSuffix(reason, cause)
	if !ok || rest != "" && !strings.HasSuffix(rest, ": ") {
		return reason
	}
	rest = strings.TrimSuffix(strings.TrimSuffix(rest, ": "), "last failure")
	return strings.TrimRight(rest, "; ")
}

// clock is a time for people: local, with its zone.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }
