package httpdoor

import (
	"context"
	"net/http"
)

// Do is client.Do as one call of the breaker that the client's transport picks
// for request: its redirects are part of the call, where the transport by
// itself counts each. The client's Transport must be one of [Transport]; else
// it is a *[ConfigError] and nothing is sent. The error is the client's,
// unwrapped, or the breaker's refusal.
func Do(ctx context.Context, client *http.Client, request *http.Request) (*http.Response, error) {
	t, err := guarded(client)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	return t.call(request.WithContext(ctx), client.Do)
}

func guarded(client *http.Client) (*transport, error) {
	if client != nil {
		if t, ok := client.Transport.(*transport); ok {
			return t, nil
		}
	}
	return nil, &ConfigError{"the client's Transport is not one of httpdoor.Transport"}
}
