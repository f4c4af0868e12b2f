package vectorstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Words of gRPC about a connection that could not be made. It has no type for
// them.
const (
	prefaceFailed   = "error reading server preface: "
	handshakeFailed = "authentication handshake failed: "
)

// plainly is the error of a request, in words for operators where gRPC's name
// what it did itself: it closes a connection on which a server says nothing,
// and reports that it is closed.
func plainly(err error, waited time.Duration, caller, bounded context.Context) error {
	switch st := status.Convert(err); {
	case st.Code() == codes.DeadlineExceeded && caller.Err() == nil && bounded.Err() != nil:
		return status.Error(st.Code(), fmt.Sprintf("no answer in time: waited for %v", waited))
	case st.Code() == codes.Unavailable:
		if text := unconnected(st.Message()); text != "" {
			return status.Error(st.Code(), text)
		}
	}
	return err
}

// unconnected says why a server that takes connections is not one to talk to.
// It is empty for any other message.
func unconnected(message string) string {
	_, why, preface := strings.Cut(message, prefaceFailed)
	if !preface {
		var handshake bool
		if _, why, handshake = strings.Cut(message, handshakeFailed); !handshake {
			return ""
		}
	}
	why = strings.TrimSuffix(why, `"`)
	switch {
	case containsAny(why, "use of closed network connection", "on closed pipe", "deadline exceeded", "i/o timeout"):
		return "no answer in time: the server accepts connections and says nothing"
	case !preface:
		return ""
	case strings.Contains(why, "looked like an HTTP/1.1 header"):
		return "not a Milvus server: it answers in HTTP/1.1, and not in gRPC"
	case containsAny(why, "frame", "PROTOCOL_ERROR"):
		return "not a Milvus server: it does not answer in gRPC: " + why
	}
	return "the server accepts connections and breaks them off: " + why
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
