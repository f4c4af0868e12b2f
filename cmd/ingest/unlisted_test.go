package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A run that could not list an input ended with 65, "see 'ingest status'". That
// did not name it, and the run counted as a success.
func TestUnlistedInputsAreInTheStatus(t *testing.T) {
	for name, row := range map[string]struct{ input, says string }{
		"missing":      {"nowhere", "cannot list nowhere: no such file or directory"},
		"no match":     {"docs/nothing*.md", "cannot list docs/nothing*.md: no document found"},
		"line of list": {"@list", "cannot list docs/gone.md: no such file or directory"},
		"a device":     {"/dev/null", "cannot list /dev/null: not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t)
			c.write(t, "docs/a.md", "A text.")
			c.write(t, "list", "docs/a.md\ndocs/gone.md\n")
			require.Zero(t, c.run(t, "docs").code)
			succeeded := c.status(t).LastSuccess
			require.NotNil(t, succeeded)

			o := c.ingest(t, "docs", row.input)
			require.Equal(t, exitData, o.code, o.stdout+o.stderr)
			require.Len(t, o.summary.Unlisted, 1)
			assert.Contains(t, o.summary.Unlisted[0], row.says)
			assert.Equal(t, succeeded, o.summary.LastSuccess)
			assert.Equal(t, succeeded, c.status(t).LastSuccess)
			assert.Contains(t, c.run(t, "status").stdout, "    "+row.says)

			require.Zero(t, c.run(t, "docs").code)
			assert.True(t, c.status(t).LastSuccess.After(*succeeded))
			assert.NotContains(t, c.run(t, "status").stdout, row.says)
		})
	}
}

// Nothing was a success yet, although nothing stopped the only run.
func TestUnlistedInputsOfTheFirstRun(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "A text.")
	require.Equal(t, exitData, c.run(t, "docs", "nowhere").code)
	assert.Nil(t, c.status(t).LastSuccess)
	require.Equal(t, exitData, c.run(t, "docs", "nowhere").code)
	assert.Nil(t, c.status(t).LastSuccess)
}
