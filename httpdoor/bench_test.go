package httpdoor_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
)

// canned answers at once, so that what is measured is what the door adds.
func canned(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// chatty is canned with a body.
func chatty(r *http.Request) (*http.Response, error) {
	resp, err := canned(r)
	resp.Body = &once{}
	return resp, err
}

type once struct{ read bool }

func (o *once) Read(p []byte) (int, error) {
	if o.read {
		return 0, io.EOF
	}
	o.read = true
	return copy(p, "text"), nil
}

func (o *once) Close() error { return nil }

func BenchmarkTransport(b *testing.B) {
	breaker := testutil.NewBreaker(b, "service", resilience.Config{Logger: quiet()})
	config := httpdoor.Config{Breaker: breaker}
	for name, base := range map[string]roundTripper{"empty": canned, "body": chatty} {
		for kind, transport := range map[string]http.RoundTripper{
			"bare": base, "guarded": httpdoor.Transport(base, config),
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://service", nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				text := make([]byte, 16)
				for b.Loop() {
					resp, err := transport.RoundTrip(r)
					if err != nil {
						b.Fatal(err)
					}
					for err == nil && resp.Body != http.NoBody {
						_, err = resp.Body.Read(text)
					}
					_ = resp.Body.Close()
				}
			})
		}
	}
}
