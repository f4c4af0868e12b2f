package objectstore_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

const digits = "0123456789"

// piece is an answer with a status, a Content-Range unless it is "", and a
// body.
type piece struct {
	status int
	extent string
	body   string
}

func (p piece) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if p.extent != "" {
		w.Header().Set("Content-Range", p.extent)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(p.body)))
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, p.body)
}

// downloaded is the text of the file after a download, "" without one.
func downloaded(t *testing.T, g objectstore.Guard, url, file string) (string, error) {
	t.Helper()
	_, err := g.DownloadFile(t.Context(), newClient(t, objectstore.Config{Endpoint: url}), get("key"), file)
	text, _ := os.ReadFile(file)
	return string(text), err
}

// A store that answered with a part to a request for the whole was believed:
// zero bytes stood for what it did not send, three gigabytes of them if it said
// so.
func TestDownloadTakesTheWholeObjectOnly(t *testing.T) {
	for _, answer := range []piece{
		{200, "", digits}, {200, "bytes 0-9/10", digits}, {206, "bytes 0-9/10", digits}, {200, "", ""},
	} {
		s := serve(t, answer.ServeHTTP)
		g, b := breaker(t, resilience.Config{})
		text, err := downloaded(t, g, s.URL, filepath.Join(t.TempDir(), "file"))
		require.NoError(t, err, "%+v", answer)
		assert.Equal(t, answer.body, text, "%+v", answer)
		assert.EqualValues(t, 1, b.Snapshot().Successes, "%+v", answer)
	}
	for _, answer := range []piece{
		{206, "", digits},
		{206, "", "56789"},
		{203, "", digits},
		{204, "", ""},
		{299, "", digits},
		{206, "bytes 5-9/10", "56789"},
		{200, "bytes 5-9/10", "56789"},
		{206, "bytes 0-4/10", "01234"},
		{206, "bytes 0-4/*", "01234"},
		{206, "bytes */10", digits},
		{206, "bytes 0-4/-1", "01234"},
		{206, "bytes -5-9/10", "56789"},
		{206, "bytes +0-9/10", digits},
		{206, "bytes 0-4/5 junk", "01234"},
		{206, "bytes 0-9/10, bytes 0-9/10", digits},
		{206, "junk", digits},
		{206, "items 0-9/10", digits},
		{206, "bytes 9-0/10", digits},
		{206, "bytes 0-10/10", digits},
		{206, "bytes 0-9/9", digits},
		{206, "bytes 0-9/10", "01234"},
		{206, "bytes 0-4/5", digits},
		{206, "bytes 3000000000-3000000004/3000000005", "01234"},
		{206, "bytes 0-9223372036854775806/9223372036854775807", digits},
		{206, "bytes 9223372036854775807-9/10", "01234"},
		{206, "bytes 99999999999999999999-9/10", "01234"},
	} {
		s := serve(t, answer.ServeHTTP)
		g, b := breaker(t, resilience.Config{})
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
		text, err := downloaded(t, g, s.URL, file)
		var broken *objectstore.ContractError
		require.ErrorAs(t, err, &broken, "%+v", answer)
		assert.Equal(t, "old", text, "%+v", answer)
		assert.EqualValues(t, 1, b.Snapshot().Failures, "%+v", answer)
		assert.Equal(t, []string{"file"}, folder(t, filepath.Dir(file)), "%+v", answer)
	}
}

// breaksOff is a store whose first answer ends in the middle, and that then
// answers by rest.
func breaksOff(t *testing.T, rest http.Handler) (url string, asked *[]string) {
	asked = new([]string)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Header.Get("Range"))
		if len(*asked) > 1 {
			rest.ServeHTTP(w, r)
			return
		}
		halfBody(w, r)
	})
	return s.URL, asked
}

// A resumed download took any answer for the rest: the tail alone where the
// store forgot to say what it sent, and zero bytes after an offset that was not
// asked for.
func TestResumedDownloadTakesTheRestOnly(t *testing.T) {
	for _, answer := range []piece{
		{206, "bytes 5-9/10", "56789"}, {200, "", digits}, {200, "bytes 0-9/10", digits},
	} {
		url, asked := breaksOff(t, answer)
		g, _ := breaker(t, resilience.Config{})
		file := filepath.Join(t.TempDir(), "file")
		_, err := downloaded(t, g, url, file)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		text, err := downloaded(t, g, url, file)
		require.NoError(t, err, "%+v", answer)
		assert.Equal(t, digits, text, "%+v", answer)
		assert.Equal(t, []string{"", "bytes=5-"}, *asked)
	}
	for _, answer := range []piece{
		{206, "", "56789"},
		{206, "", digits},
		{206, "bytes 0-9/10", digits},
		{206, "bytes 7-9/10", "789"},
		{206, "bytes 4-9/10", "456789"},
		{206, "bytes 5-8/10", "5678"},
		{206, "bytes 5-9/*", "56789"},
		{206, "bytes 5-11/12", "56789ab"},
		{206, "bytes 5-8/9", "5678"},
		{206, "bytes 5-9/10", "5678"},
		{206, "bytes 5-9/10", "567890"},
		{200, "bytes 5-9/10", "56789"},
		{203, "", digits},
		{206, "bytes 5-9/10 junk", "56789"},
		{206, "bytes -5-9/10", "56789"},
		{206, "bytes 3000000000-3000000004/3000000005", "56789"},
	} {
		url, asked := breaksOff(t, answer)
		g, b := breaker(t, resilience.Config{})
		file := filepath.Join(t.TempDir(), "file")
		_, err := downloaded(t, g, url, file)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		_, err = downloaded(t, g, url, file)
		var broken *objectstore.ContractError
		require.ErrorAs(t, err, &broken, "%+v", answer)
		assert.EqualValues(t, 2, b.Snapshot().Failures, "%+v", answer)
		assert.Empty(t, folder(t, filepath.Dir(file)), "%+v: nothing is kept to be resumed", answer)
		_, _ = downloaded(t, g, url, file)
		assert.Equal(t, []string{"", "bytes=5-", ""}, *asked, "%+v: the next try starts over", answer)
		if text, err := os.ReadFile(file); err == nil {
			assert.Equal(t, digits, string(text), "%+v", answer)
		}
	}
}

// A store that says nothing of the length is believed at the end of its body,
// and one that sends more than it said is not.
func TestLengthOfADownloadIsTheObjects(t *testing.T) {
	store := openStore(t)
	keep(t, store, "key", digits, nil)
	longer := func(o *s3.GetObjectOutput) { o.Body = io.NopCloser(strings.NewReader(digits + "!")) }
	for name, row := range map[string]struct {
		change func(*s3.GetObjectOutput)
		good   bool
	}{
		"no length": {func(o *s3.GetObjectOutput) { o.ContentLength = nil }, true},
		"negative":  {func(o *s3.GetObjectOutput) { o.ContentLength = aws.Int64(-10) }, false},
		"longer":    {longer, false},
		"endless": {func(o *s3.GetObjectOutput) {
			o.ETag, o.Body = aws.String(`"no MD5"`), io.NopCloser(endless{})
		}, false},
		"no body": {func(o *s3.GetObjectOutput) { o.Body = nil }, false},
	} {
		g, b := breaker(t, resilience.Config{})
		file := filepath.Join(t.TempDir(), "file")
		_, err := g.DownloadFile(t.Context(), lying{store, row.change}, get("key"), file)
		if row.good {
			require.NoError(t, err, name)
			continue
		}
		var broken *objectstore.ContractError
		require.ErrorAs(t, err, &broken, name)
		assert.EqualValues(t, 1, b.Snapshot().Failures, name)
		assert.Empty(t, folder(t, filepath.Dir(file)), name)
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, digits), nil }
