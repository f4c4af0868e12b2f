package main

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A value that no run can use is an error of the command line, which names the
// flag, and leaves no folder.
func TestValuesOutOfRangeAreUsageErrors(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A pump.")
	for _, tt := range []struct{ args, want string }{
		{"--chunk-tokens -5 docs", "--chunk-tokens: -5 is less than 0"},
		{"--chunk-tokens=5 docs", "--chunk-tokens, --chunk-overlap: 5 tokens a chunk are too few, the least is 8"},
		{"--chunk-overlap=300 docs", "--chunk-overlap: an overlap of 300 tokens must be less than the 256 of a chunk"},
		{"--chunk-overlap=-5 docs", "--chunk-overlap: -5 is less than -1"},
		{
			"chunk --chunk-tokens=64 --chunk-overlap=64 docs/a.md",
			"--chunk-overlap: an overlap of 64 tokens must be less than the 64 of a chunk",
		},
		{"--rate -1 docs", "--rate: -1 is less than 0"},
		{"--rate=nan docs", "--rate: NaN is less than 0"},
		{"--s3-bucket= docs", "--s3-bucket: is empty"},
		{"search --collection= pump", "--collection: is empty"},
		{"--state= docs", "--state: is empty"},
		{"--stdin-name= -", "--stdin-name: is empty"},
		{"--llm-base-url=http://a/v1 --embedding-model= docs", "--embedding-model: is empty"},
		{"--dimensions=-3 docs", "--dimensions: -3 is less than 0"},
		{"--enrich-budget=-1 docs", "--enrich-budget: -1 is less than 0"},
		{"--max-size=-1 docs", "--max-size: -1 is less than 0"},
		{"parse --max-work=-1 docs/a.md", "--max-work: -1 is less than 0"},
		{"--max-entries=-1 docs", "--max-entries: -1 is less than 0"},
		{"--max-unpacked=-1 docs", "--max-unpacked: -1 is less than 0"},
		{"--max-ratio=-1 docs", "--max-ratio: -1 is less than 0"},
		{"--max-depth=-1 docs", "--max-depth: -1 is less than 0"},
		{"--max-memory=-1 docs", "--max-memory: -1 is less than 0"},
		{"retry --max-download=-1", "--max-download: -1 is less than 0"},
		{"serve --parse-timeout=-1s docs", "--parse-timeout: -1s is less than 0s"},
		{"--prune-limit=-2 docs", "--prune-limit: -2 is less than -1"},
		{"--skip-exit-code=300 docs", "--skip-exit-code: 300 is more than 255"},
		{"--skip-exit-code=-1 docs", "--skip-exit-code: -1 is less than 0"},
		{"search -n0 pump", "--limit: 0 is less than 1"},
	} {
		o := c.run(t, strings.Fields(tt.args)...)
		assert.Equal(t, exitUsage, o.code, "%s: %s", tt.args, o.stderr)
		assert.Contains(t, o.stderr, tt.want)
		assert.NoDirExists(t, c.path(".penstock"), tt.args)
	}
	for _, meta := range []string{"=x", "title=x", "a-b=x"} {
		o := c.run(t, "--meta", meta, "docs")
		assert.Equal(t, exitUsage, o.code, o.stderr)
		assert.Contains(t, o.stderr, "--meta: key", meta)
	}
}

func TestValuesOutOfRangeNameTheirSource(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A pump.")
	c.write(t, "penstock.yaml", "max-size: -1")
	o := c.run(t, "docs")
	assert.Equal(t, exitConfiguration, o.code)
	assert.Contains(t, o.stderr, "configuration file penstock.yaml: max-size: -1 is less than 0")
	c.env = []string{"PENSTOCK_MAX_SIZE=-2"}
	o = c.run(t, "docs")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "--max-size (environment, PENSTOCK_MAX_SIZE): -2 is less than 0")
	assert.Contains(t, c.run(t, "docs", "--max-size=-3").stderr, "--max-size: -3 is less than 0")
	assert.Zero(t, c.run(t, "docs", "--max-size=0", "--prune-limit=-1", "--chunk-overlap=-1", "--rate=0").code)
}

func TestLimitsOfFlagsAreNumbers(t *testing.T) {
	limits := 0
	for _, node := range append([]*kong.Node{grammar(t).Model.Node}, grammar(t).Model.Children...) {
		for _, flag := range node.Flags {
			for _, tag := range []string{"min", "max"} {
				if !flag.Tag.Has(tag) {
					continue
				}
				limits++
				text := flag.Tag.Get(tag)
				if _, isTime := reflect.TypeAssert[time.Duration](flag.Target); isTime {
					_, err := time.ParseDuration(text)
					require.NoError(t, err, flag.Name)
					continue
				}
				_, err := strconv.Atoi(text)
				require.NoError(t, err, flag.Name)
			}
		}
	}
	assert.Greater(t, limits, 15)
}

// A secret in an address was printed by the error that refused it.
func TestSecretsInAddressesAreNotShown(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A pump.")
	for flag, secret := range map[string]string{
		"--llm-base-url": "--llm-api-key", "--chat-base-url": "--chat-api-key",
		"--s3-endpoint": "AWS_SECRET_ACCESS_KEY", "--milvus": "--milvus-password",
	} {
		for _, address := range []string{
			"http://user:" + ownSecret + "@127.0.0.1:1/v1", "http://127.0.0.1:1/v1?key=" + ownSecret,
			"ftp://a/#" + ownSecret, "user:" + ownSecret + "@127.0.0.1:1",
		} {
			o := c.run(t, flag, address, "docs")
			assert.Equal(t, exitConfiguration, o.code, o.stderr)
			assert.Contains(t, o.stderr, flag+": an address has no user, query or fragment")
			assert.Contains(t, o.stderr, secret)
			assert.NotContains(t, o.stdout+o.stderr, ownSecret)
		}
	}
	o := c.run(t, "--pushgateway=http://127.0.0.1:1/?key="+ownSecret, "docs")
	assert.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stderr, "its address has a query or a fragment")
	assert.NotContains(t, o.stderr, ownSecret)
}
