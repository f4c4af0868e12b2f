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
	writeStop(line, ink, s.Stopped)
}

func writeCounts(line func(format string, args ...any), s pipeline.Summary) {
	line("%d documents in %s: %d ingested (%d chunks, %d embedded), %d unchanged, %d dead letters, %d deferred",
		s.Documents, s.Elapsed.Round(time.Millisecond), s.Ingested, s.Chunks, s.Embedded, s.Unchanged,
		s.DeadLetters, s.Deferred)
	if s.KnownDeadLetters > 0 {
		line("%d known dead letters are unchanged; 'ingest status' lists them, 'ingest retry' tries them again",
			s.KnownDeadLetters)
	}
	writeEnrichment(line, s)
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

// writeStop says why a run ended early. The upstream's own words come last,
// where they remain on the screen.
func writeStop(line func(format string, args ...any), ink ink, stopped *pipeline.Stop) {
	if stopped == nil {
		return
	}
	about, reason := []string{string(stopped.Kind)}, stopped.Reason
	if stopped.Upstream != "" {
		about = append(about, placeOf(stopped))
	}
	if stopped.Cause != "" {
		reason = withoutCause(reason, stopped.Cause)
	}
	text := "stopped (" + strings.Join(about, ", ") + ")"
	if reason != "" {
		text += ": " + reason
	}
	if stopped.RetryAt != nil {
		text += "; run again after " + clock(*stopped.RetryAt)
	}
	line("%s", ink.bad(plain.Line(text)))
	if stopped.Cause != "" {
		line("%s %s", ink.strong("cause:"), plain.Line(stopped.Cause))
	}
}

func placeOf(stopped *pipeline.Stop) string {
	place := stopped.Upstream
	if stopped.Address != "" {
		place += " at " + stopped.Address
	}
	if stopped.Model != "" {
		place += ", model " + stopped.Model
	}
	return place
}

// withoutCause is a reason without the cause at its end, which is printed on a
// line of its own.
func withoutCause(reason, cause string) string {
	rest, ok := strings.CutSuffix(reason, cause)
	if !ok {
		return reason
	}
	rest = strings.TrimSuffix(strings.TrimSpace(rest), "last failure:")
	return strings.TrimRight(rest, ";: ")
}

// clock is a time for people: local, with its zone.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }
