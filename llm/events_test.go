package llm

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// Nothing is lost of a stream without errors, and a chunk that is made of an error is read as one.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "data: [DONE]", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", ": comment\r\n\r\nid: 1\r\n",
		"event: error\ndata: {}\n\ndata: {}\n\n", "event: error\ndata: \xff\n", "error: {\"code\":500}\n", "error:", "error: null\n",
		"data: {\"error\":null,\"choices\":[]}\n", "data: {\"error\":{\"message\":\"sk-of-this-test\"}}", "{\"error\":\"x\"}", "data:{\"object\":\"error\"}\n",
		"data: {\"choices\":[{\"error\":[[[0]]]},{\"delta\":{\"error\":true}}]}\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		body := newEvents(io.NopCloser(iotest.OneByteReader(strings.NewReader(stream))), "sk-of-this-test")
		got, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stream, "error") && !strings.Contains(stream, "sk-of-this-test") && !strings.Contains(stream, "[DONE]") {
			if strings.TrimSuffix(string(got), "\n") != strings.TrimSuffix(stream, "\n") {
				t.Fatalf("%q became %q", stream, got)
			}
		}
		for _, text := range []string{stream, strings.TrimSpace(stream)} {
			e := &events{key: "sk-of-this-test"}
			line := bytes.TrimSpace(e.failure([]byte(text)))
			if errorIn(opChatStream, bytes.TrimPrefix(line, []byte("data: "))) == nil {
				t.Fatalf("no error is read in %q, which was made of %q", line, text)
			}
		}
	})
}
