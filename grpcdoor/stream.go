package grpcdoor

import (
	"io"
	"runtime"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/penstock-go/penstock/internal/door"
)

// stream is a ClientStream at whose end its call ends.
type stream struct {
	grpc.ClientStream

	h    *door.Handle
	many bool // the server may send several messages
}

// follow puts the end of a call at the end of its stream. If nobody holds the
// stream any more, the call is abandoned.
func follow(inner grpc.ClientStream, h *door.Handle, many bool) grpc.ClientStream {
	s := &stream{inner, h, many}
	if h.Holds() {
		runtime.AddCleanup(s, (*door.Handle).Abandon, h)
	}
	return s
}

// Header ends the call with its error, if the stream could not be opened.
func (s *stream) Header() (md metadata.MD, err error) {
	u := s.h.Using()
	defer u.Done()
	if md, err = s.ClientStream.Header(); err != nil {
		s.h.End(err)
	}
	u.Returned = true
	return md, err
}

// SendMsg renews a probe's lease. Its io.EOF says that the stream has ended;
// why, RecvMsg says.
func (s *stream) SendMsg(m any) error {
	u := s.h.Using()
	defer u.Done()
	err := s.ClientStream.SendMsg(m)
	switch {
	case err == nil:
		s.h.Renew()
	case err != io.EOF: //nolint:errorlint // ClientStream's own contract
		s.h.End(err)
	}
	u.Returned = true
	return err
}

// RecvMsg ends the call at the end of the stream: io.EOF, an error, or the one
// answer of a server that sends one.
func (s *stream) RecvMsg(m any) error {
	u := s.h.Using()
	defer u.Done()
	err := s.ClientStream.RecvMsg(m)
	if err != nil || !s.many {
		s.h.End(err)
	} else {
		s.h.Renew()
	}
	u.Returned = true
	return err
}
