package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/resilience"
)

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks are the fenced blocks of the guide in one language.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/fleet.md")
	require.NoError(t, err)
	for _, match := range fence.FindAllStringSubmatch(string(page), -1) {
		if match[1] == language {
			found = append(found, match[2])
		}
	}
	require.NotEmpty(t, found)
	return found
}

// Each Go snippet of the guide is in this program.
func TestSnippetsOfTheGuide(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var program strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		program.WriteString(unindented(string(text)))
	}
	for _, snippet := range blocks(t, "go") {
		assert.Contains(t, program.String(), unindented(snippet))
	}
}

func unindented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}

// The commands of the guide show the record of a breaker that has opened, and
// who follows; the fields that they show are those that the guide explains.
func TestCommandsOfTheGuide(t *testing.T) {
	addr := upstreams.StartRedis(t).Addr
	program := upstreams.Program(t, "redis-cli")
	store, shut, err := open("redis://"+addr, "prod")
	require.NoError(t, err)
	defer shut()
	fleet := resilience.NewFleet(store, resilience.FleetConfig{})
	defer fleet.Close()
	b, err := resilience.New("crm", resilience.Config{Shared: fleet})
	require.NoError(t, err)
	b.Locate("http://crm.internal")
	for range failMax {
		_ = b.Do(t.Context(), func(context.Context) error { return errors.New("upstream is down") })
	}

	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	var shown []string
	for line := range strings.Lines(blocks(t, "sh")[0]) {
		command := strings.Replace(strings.TrimSpace(line), "redis-cli", program+" -p "+port, 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
		shown = append(shown, strings.TrimSpace(string(out)))
	}
	require.Len(t, shown, 4)
	assert.Equal(t, "prod:breaker:1/crm@http://crm.internal", shown[0])
	assert.Contains(t, shown[1], `"state":"open"`)
	assert.NotContains(t, shown[1], "upstream is down")
	assert.Regexp(t, `^[1-9]\d+$`, shown[2])
	assert.Equal(t, "prod:breakers\n1", shown[3])
	page, err := os.ReadFile("../../docs/fleet.md")
	require.NoError(t, err)
	for _, field := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(shown[1], -1) {
		assert.Contains(t, string(page), "`"+field[1]+"`")
	}
}
