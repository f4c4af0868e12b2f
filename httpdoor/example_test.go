package httpdoor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
)

func newBreaker(name string) *resilience.Breaker {
	b, err := resilience.New(name, resilience.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return b
}

// A client whose every request is a call of one breaker.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := &http.Client{Transport: httpdoor.Transport(nil, httpdoor.Config{Breaker: newBreaker("registry")})}
	for range 6 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println("refused:", errors.Is(err, resilience.ErrOpen))
			continue
		}
		fmt.Println(resp.StatusCode)
		_ = resp.Body.Close()
	}
	// Output:
	// 503
	// 503
	// 503
	// 503
	// 503
	// refused: true
}

// A breaker for each host that the client asks.
func ExampleTransport_family() {
	hosts, err := resilience.Default.Keyed("registry", resilience.Config{})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: httpdoor.Transport(nil, httpdoor.Config{
		Pick: func(r *http.Request) *resilience.Breaker { return hosts.Get(r.URL.Host) },
	})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "found")
	}))
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Println(string(text))
	// Output: found
}

// An answer that is checked before anybody builds on it: the page of a proxy
// under status 200 is a failure of the service.
func ExampleJSON() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/companies/7" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"name":"Penstock Ltd","active":true}`)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>please sign in</html>")
	}))
	defer server.Close()
	type company struct {
		Name   string `json:"name"`
		Active bool   `json:"active"`
	}

	client := &http.Client{Transport: httpdoor.Transport(nil, httpdoor.Config{Breaker: newBreaker("registry")})}
	for _, path := range []string{"/companies/7", "/"} {
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			panic(err)
		}
		found, err := httpdoor.JSON[company](context.Background(), client, r)
		if contract, ok := errors.AsType[*httpdoor.ContractError](err); ok {
			fmt.Println(contract.Problem)
			continue
		}
		fmt.Println(found)
	}
	// Output:
	// {Penstock Ltd true}
	// JSON was asked for, and "text/html" came
}
