package objectstore_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/door/doortest"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

func TestSettledIsToldEachVerdictOnce(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		want   resilience.Verdict
	}{
		{"an answer", says(404, "NoSuchKey"), resilience.Verdict{Outcome: resilience.Success}},
		{"failure", says(500, "InternalError"), resilience.Verdict{Outcome: resilience.Failure}},
		{"denied", says(401, "AccessDenied"), resilience.Verdict{Outcome: resilience.Denied}},
		{
			"throttled", says(429, "SlowDown", "Retry-After: 7"),
			resilience.Verdict{Outcome: resilience.Throttled, RetryAfter: 7 * time.Second},
		},
	} {
		g, b := breaker(t, resilience.Config{FailMax: 100})
		told := doortest.Hear(&g.Settled)
		for name, op := range operations(t, g, plainClient(serve(t, row.answer).URL)) {
			*told = nil
			require.Error(t, op(t.Context()), name)
			assert.Equal(t, []resilience.Verdict{row.want}, *told, "%s, %s", row.name, name)
		}
		b.ForceOpen("maintenance")
		*told = nil
		for name, op := range operations(t, g, plainClient("http://127.0.0.1:1")) {
			require.ErrorIs(t, op(t.Context()), resilience.ErrOpen, name)
		}
		assert.Empty(t, *told, "nothing is said of refusals")
	}
}

func TestSettledIsToldOfABodyAtItsEnd(t *testing.T) {
	for name, row := range map[string]struct {
		use  func(io.ReadCloser)
		want resilience.Outcome
	}{
		"read to its end": {func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, resilience.Success},
		"closed early":    {func(b io.ReadCloser) { _ = b.Close() }, resilience.Ignored},
	} {
		g, _ := breaker(t, resilience.Config{})
		told := doortest.Hear(&g.Settled)
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") })
		out, err := g.GetObject(t.Context(), plainClient(s.URL), get("key"))
		require.NoError(t, err, name)
		assert.Empty(t, *told, name)
		row.use(out.Body)
		_ = out.Body.Close()
		assert.Equal(t, []resilience.Verdict{{Outcome: row.want}}, *told, name)
	}
}

type panicking struct{ objectstore.Reader }

func (panicking) HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error) {
	panic("client")
}

func TestSettledHearsNothingOfPanics(t *testing.T) {
	g, _ := breaker(t, resilience.Config{})
	told := doortest.Hear(&g.Settled)
	assert.Panics(t, func() { _, _ = g.HeadBucket(t.Context(), panicking{}, anyBucket) })
	assert.Empty(t, *told)
}
