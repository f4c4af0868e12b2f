// Package hostile has servers that violate HTTP, to test that a client returns
// in time, with an error, and with bounded memory:
//
//	answers := hostile.HTTP("application/json", `{"data":[`, `{"error":"`)
//	answers["half a list"] = hostile.Text("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1,")
//	hostile.Each(t, answers, func(t *testing.T, url string) {
//		_, err := client(url).List(t.Context())
//		require.Error(t, err)
//	})
package hostile

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Answer answers a client whose request has been read. The connection is closed
// when it returns, and reads and writes fail once the client has closed the
// connection or the test has ended. It is called concurrently for several
// connections.
type Answer func(conn io.ReadWriter)

// Text sends text and closes the connection.
func Text(text string) Answer {
	return func(conn io.ReadWriter) { _, _ = io.WriteString(conn, text) }
}

// Endless sends text and then piece repeatedly until the client leaves.
func Endless(text, piece string) Answer {
	pieces := strings.Repeat(piece, 64<<10/len(piece)+1)
	return func(conn io.ReadWriter) {
		for _, err := io.WriteString(conn, text); err == nil; {
			_, err = io.WriteString(conn, pieces)
		}
	}
}

// Stalled sends text, calls said if it is not nil, and then waits until the
// client leaves.
func Stalled(text string, said func()) Answer {
	return func(conn io.ReadWriter) {
		_, _ = io.WriteString(conn, text)
		if said != nil {
			said()
		}
		_, _ = io.Copy(io.Discard, conn)
	}
}

// HTTP returns unusable answers by name. They declare mediaType. half is the
// beginning of a valid document, failure the beginning of one that describes an
// error.
func HTTP(mediaType, half, failure string) map[string]Answer {
	head := "HTTP/1.1 200 OK\r\nContent-Type: " + mediaType + "\r\n"
	return map[string]Answer{
		"length no number":  Text(head + "Content-Length: many\r\n\r\n{}"),
		"two lengths":       Text(head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
		"chunks of garbage": Text(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}"),
		"half a document":   Text(head + "Connection: close\r\n\r\n" + half),
		"no gzip": Text(head +
			"Content-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"),
		"no HTTP":              Text("SSH-2.0-OpenSSH_9.2\r\n"),
		"headers without end":  Endless(head, "X-More: and more\r\n"),
		"hints without end":    Endless("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
		"a page":               Text(page),
		"an error without end": Endless("HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n"+failure, "oops"),
		"no words":             Text(""),
	}
}

const page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 28\r\nConnection: close\r\n\r\n<html><p>sign in!</p></html>"

// Serve answers the first request of each connection and returns the server's
// URL, without a slash at its end. The server is gone when the test ends.
func Serve(t testing.TB, answer Answer) (url string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{answer: answer, open: map[net.Conn]bool{}}
	s.work.Go(func() { s.accept(l) })
	t.Cleanup(func() {
		_ = l.Close()
		s.close()
		s.work.Wait()
	})
	return "http://" + l.Addr().String()
}

// Each runs check against a server for each answer, in parallel subtests.
func Each(t *testing.T, answers map[string]Answer, check func(t *testing.T, url string)) {
	t.Helper()
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, Serve(t, answer))
		})
	}
}

type server struct {
	answer Answer
	work   sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func (s *server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if s.keep(conn) {
			s.work.Go(func() { s.serve(conn) })
		}
	}
}

func (s *server) serve(conn net.Conn) {
	defer s.drop(conn)
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		s.answer(conn)
	}
}

// keep records an open connection, unless the test has ended.
func (s *server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.open[conn] = true
	return true
}

func (s *server) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
	_ = conn.Close()
}

func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.open {
		_ = conn.Close()
	}
}
