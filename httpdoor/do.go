package httpdoor

import (
	"context"
	"net/http"
)

// Do is client.Do with ctx, in place of the request's own context, as one call
// of the breaker that the client's transport picks for request: its redirects
// are part of the call, where the transport by itself counts each. The client's
// Transport must be one of [Transport]; else it is a *[ConfigError] and nothing
// is sent. The error is the client's, unwrapped, or the breaker's refusal.
func Do(ctx context.Context, client *http.Client, request *http.Request) (*http.Response, error) {
	t, err := guarded(client, request)
	if err != nil {
		return nil, err
	}
	return t.call(request.WithContext(ctx), client.Do)
}

// guarded is the client's transport. If that is not one of ours, the body of
// the request is closed.
func guarded(client *http.Client, request *http.Request) (*transport, error) {
	if request == nil {
		return nil, &ConfigError{"the request is nil"}
	}
	if client != nil {
		if t, ok := client.Transport.(*transport); ok {
			return t, nil
		}
	}
	closeBody(request)
	return nil, &ConfigError{"the client's Transport is not one of httpdoor.Transport"}
}
