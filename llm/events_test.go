package llm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// passed is what comes of a stream without errors: what has data, and what is
// no event. It is not ok where an event has several lines of data.
func passed(stream string) (text string, ok bool) {
	var all strings.Builder
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(stream, "\ufeff"))
	for line := range strings.Lines(stream) {
		text := strings.TrimSpace(line)
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch {
		case text == "", text[0] == ':', name == "id", name == "event", name == "retry", name == "data" && value == "":
		case name == "data" && !strings.HasSuffix(line, "\n") && strings.HasPrefix("[DONE]", value):
			all.WriteString("data: [DONE]\n")
		case name == "data" && new(joined).add([]byte(value)):
			return "", false
		case name == "data":
			all.WriteString("data: " + value + "\n")
		default:
			all.WriteString(line)
		}
	}
	return all.String(), true
}

// slow is a server that says a comment every 40 seconds, and at last a chunk.
// After that it is silent.
type slow struct {
	ctx  context.Context
	said int
}

func (s *slow) Read(p []byte) (int, error) {
	pause, text := 40*time.Second, ": PROCESSING\n\n"
	switch s.said++; s.said {
	case 100:
		text = `data: {"choices":[]}` + "\n\n"
	case 101:
		pause = time.Hour
	}
	select {
	case <-time.After(pause):
		return copy(p, text), nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (*slow) Close() error { return nil }

// A comment hands nothing on; that is no silence.
func TestCommentsAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounds(t.Context())
		timer, silence := time.NewTimer(time.Hour), time.Minute
		answer := &body{inner: &slow{ctx: b.ctx}, bounds: b, wait: new(wait), timer: timer, left: 1 << 20}
		answer.streams(false, silence)
		e := newEvents(answer, nil, new(wait))
		started := time.Now()
		p := make([]byte, 100)
		n, err := e.Read(p)
		if err != nil || string(p[:n]) != `data: {"choices":[]}`+"\n" {
			t.Fatal(string(p[:n]), err)
		}
		if waited := time.Since(started); waited != 100*40*time.Second {
			t.Fatal(waited)
		}
		_, err = e.Read(p)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 100*40*time.Second+time.Minute {
			t.Fatal(err, time.Since(started))
		}
	})
}

func BenchmarkEvents(b *testing.B) {
	for name, before := range map[string]string{"plain": "", "error null first": `"error":null,`} {
		line := `data: {` + before +
			`"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
		stream := strings.Repeat(line, 2_000) + "data: [DONE]\n\n"
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				body := newEvents(io.NopCloser(strings.NewReader(stream)), []string{"sk-of-this-test"}, new(wait))
				if _, err := io.Copy(io.Discard, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Nothing is lost of a stream without errors, and a chunk that is made of an
// error is read as one.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "data: [DONE]", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", ": comment\r\n\r\nid: 1\r\n",
		"event: error\ndata: {}\n\ndata: {}\n\n", "event: error\ndata: \xff\n", "error: {\"code\":500}\n",
		"error:", "error: null\n",
		"data: {\"error\":null,\"choices\":[]}\n", "data: {\"error\":{\"message\":\"sk-of-this-test\"}}",
		"{\"error\":\"x\"}", "data:{\"object\":\"error\"}\n",
		"\ufeffdata: {}\nid\n\ndata\nretry: 1\n{\n\n\"x\": 1\n}", "data: {}\nevent: Error\n\ndata: [DO",
		"{\n\"error\": 1\n}\n\ndata: [DONE]\n", "data: {\rdata: \"x\":1}\r\rdata: {\n\n",
		"data: {\"choices\":[{\"error\":[[[0]]]},{\"delta\":{\"error\":true}}]}\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		body := newEvents(io.NopCloser(iotest.OneByteReader(strings.NewReader(stream))),
			[]string{"sk-of-this-test"}, new(wait))
		got, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.ToLower(stream), "error") && !strings.Contains(stream, "sk-of-this-test") {
			if want, ok := passed(stream); ok && string(got) != want {
				t.Fatalf("%q became %q, not %q", stream, got, want)
			}
		}
		for _, text := range []string{stream, strings.TrimSpace(stream)} {
			e := &events{keys: []string{"sk-of-this-test"}, call: new(wait)}
			e.failure([]byte(text))
			line := bytes.TrimSpace(e.out)
			if errorIn(opChatStream, bytes.TrimPrefix(line, []byte("data: "))) == nil {
				t.Fatalf("no error is read in %q, which was made of %q", line, text)
			}
		}
	})
}
