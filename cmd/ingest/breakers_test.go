package main

import (
	"bytes"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/resilience"
)

// A full disk costs the line, not the call that made the transition.
func TestAuditLogThatCannotBeWritten(t *testing.T) {
	file, err := os.Open(os.DevNull) // for reading only
	require.NoError(t, err)
	defer file.Close()
	var log bytes.Buffer
	l := &auditLog{to: file, log: slog.New(slog.NewTextHandler(&log, nil))}
	l.write(resilience.Transition{Upstream: "s3", To: resilience.Open})
	assert.Contains(t, log.String(), "missing from the audit log")
}

// A journal may be of a program that holds its breakers.
func TestStatusShowsHolds(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, settings: &Settings{}}
	at := time.Now()
	a.printStatus(destinationStatus{EndedAt: &at, LastRun: &pipeline.Summary{
		Breakers: map[string]string{"llm": "closed", "s3": "open"},
		Holds:    map[string]string{"s3": "forced_open: maintenance\nuntil noon"},
	}})
	assert.Contains(t, out.String(), "    breaker llm: closed\n")
	assert.Contains(t, out.String(), "    breaker s3: open, forced_open: maintenance until noon\n")
}
