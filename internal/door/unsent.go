package door

import (
	"errors"
	"net/url"
	"strings"
)

// unsent are the beginnings of what net/http, net/url and x/net/http/httpproxy
// say of a request that they do not send. None of these errors has a type. They
// are those of Go 1.26: Request.write, Transport.roundTrip, NewRequest and
// Client.send in net/http, and Config.proxyForURL in httpproxy.
var unsent = []string{
	"net/http: invalid header field ", "net/http: invalid trailer field ", "net/http: invalid method ",
	"net/http: can't write control character in Request.URL", "net/http: nil Context",
	"unsupported protocol scheme", "invalid proxy address ", "refusing to use HTTP_PROXY value in CGI environment",
	"http: no Host in request URL", "http: invalid Host header", "http: nil Request.", "http: Request.ContentLength=",
	"http: ContentLength=",
	"http: Request.RequestURI can't be set in client requests",
}

// Unsent reports whether err is net/http's refusal to send a request, such as
// one with a line break in a header: nothing has left, and nobody was asked.
func Unsent(err error) bool {
	if at, ok := errors.AsType[*url.Error](err); ok {
		if at.Op == "parse" {
			return true
		}
		err = at.Err
	}
	for ; err != nil; err = errors.Unwrap(err) {
		for _, words := range unsent {
			if strings.HasPrefix(err.Error(), words) {
				return true
			}
		}
	}
	return false
}
