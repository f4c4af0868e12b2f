package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/plain"
	"github.com/penstock-go/penstock/pipeline"
	upstream "github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/resilience"
)

// writeSummary writes a summary for people, each line after the indent.
func writeSummary(w io.Writer, indent string, ink ink, s pipeline.Summary) {
	line := func(format string, args ...any) { fmt.Fprintf(w, indent+format+"\n", args...) }
	switch {
	case s.Stopped != nil && s.Documents == 0 && s.Elapsed == 0: // it did not begin, and has nothing to count
	case s.WouldIngest > 0:
		line("would ingest %s: %s, %s; %d unchanged, %s", numberOf(s.WouldIngest, "document"),
			numberOf(s.Chunks, "chunk"), numberOf(s.Tokens, "token"), s.Unchanged,
			numberOf(s.DeadLetters, "dead letter"))
	case s.Deleted+s.NotFound > 0:
		line("%s deleted (%s), %d not found, %d deferred", numberOf(s.Deleted, "document"),
			numberOf(s.Removed, "chunk"), s.NotFound, s.Deferred)
		if s.OriginalsLeft > 0 {
			line("originals left: %d; their keys do not say which collections need them; once 'ingest verify --repair' has "+
				"run for each collection of the bucket, remove the folders below originals/ whose names have 64 digits",
				s.OriginalsLeft)
		}
	default:
		writeCounts(line, s)
	}
	writeWaiting(line, s)
	if s.Stopped != nil {
		writeStop(w, indent, ink, s)
	}
}

func writeStop(w io.Writer, indent string, ink ink, s pipeline.Summary) {
	fmt.Fprintln(w, indent+ink.bad(plain.Line(stopLine(s))))
}

func writeCounts(line func(format string, args ...any), s pipeline.Summary) {
	line("%s in %s: %d ingested (%s, %d embedded), %d unchanged, %s, %d deferred", numberOf(s.Documents, "document"),
		s.Elapsed.Round(time.Millisecond), s.Ingested, numberOf(s.Chunks, "chunk"), s.Embedded, s.Unchanged,
		numberOf(s.DeadLetters, "dead letter"), s.Deferred)
	if n := s.KnownDeadLetters; n > 0 {
		line("%s unchanged; 'ingest status' lists %s, 'ingest retry' tries %[2]s again",
			numberOf(n, "known dead letter")+plain.Noun(n, " is", " are"), plain.Noun(n, "it", "them"))
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
		since = ", the oldest since " + clock(*s.WaitingSince)
	}
	if s.Waiting == 1 {
		since = strings.Replace(since, "the oldest ", "", 1)
		line("%s1 document waits to be ingested%s", least, since)
		return
	}
	line("%s%d documents wait to be ingested%s", least, s.Waiting, since)
}

// writeSilent reports what was found and was no document.
func writeSilent(line func(format string, args ...any), s pipeline.Summary) {
	if s.Skipped > 0 {
		line("%s skipped: empty, or never text, such as images; --json lists them", numberOf(s.Skipped, "file"))
	}
	if s.Gone > 0 {
		line("%s gone; --prune deletes what was ingested before", numberOf(s.Gone, "document"))
	}
	for _, input := range s.EmptyInputs {
		line("nothing to ingest in %s", plain.Name(input))
	}
}

// writeEnrichment reports the tokens spent on enrichment, and what is missing.
func writeEnrichment(line func(format string, args ...any), s pipeline.Summary) {
	if s.ChatTokens > 0 {
		line("%s spent on enrichment, %s", numberOf(s.ChatTokens, "token"), numberOf(s.Unanswered, "unusable answer"))
	}
	if s.Unenriched > 0 {
		line(
			"%s not fully enriched (budget spent, or no answer in time); the next run with --enrich continues",
			numberOf(s.Unenriched, "document")+plain.Noun(s.Unenriched, " is", " are"),
		)
	}
}

// stopLine says why a run ended early. The upstream's own words come last,
// where they remain on the screen.
func stopLine(s pipeline.Summary) string {
	stop := s.Stopped
	reason := stop.Reason
	if stop.Cause != "" {
		reason = withoutCause(reason, stop.Cause)
	}
	line := "stopped (" + string(stop.Kind) + after(", ", upstreamWords(stop)) +
		after(", model ", stop.Model) + ")" + after(": ", localTimes(reason))
	if stop.RetryAt != nil {
		line += "; run again after " + clock(*stop.RetryAt)
		if s.Breakers[stop.Upstream] == resilience.Open.String() {
			line += ", or with --now"
		}
	}
	return line + after("; cause: ", stop.Cause)
}

// embeddedWords name what is embedded in the place of an upstream.
var embeddedWords = map[string]string{
	upstream.Model: "built-in model", upstream.VectorStore: "embedded vector store",
	upstream.ObjectStore: "embedded object store",
}

// upstreamWords name the upstream of a stop and where it is.
func upstreamWords(stop *pipeline.Stop) string {
	if words := embeddedWords[stop.Upstream]; words != "" && stop.Address == embedded {
		return words
	}
	return stop.Upstream + after(" at ", stop.Address)
}

// numberOf is "1 document" or "3 documents".
func numberOf(n int, thing string) string {
	return fmt.Sprintf("%d %s", n, plain.Noun(n, thing, thing+"s"))
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

// instant matches a time as errors and logs have it.
var instant = regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z`)

// localTimes is a text of this program's for people: times in it are as clock
// has them.
func localTimes(text string) string {
	return instant.ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return clock(at)
	})
}

// clock is a time for people: local, with its zone.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }
