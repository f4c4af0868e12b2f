package vectorstore_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/testutil/hostile"
	"github.com/penstock-go/penstock/vectorstore"
)

// What gRPC itself did was reported: "error reading server preface: raw-read
// tcp 127.0.0.1:41910->127.0.0.1:19530: use of closed network connection".
func TestServerThatSaysNothingGivesNoAnswerInTime(t *testing.T) {
	for timeout, want := range map[time.Duration]error{
		time.Second: status.Error(codes.DeadlineExceeded, "no answer in time: waited for 1s"),
		time.Minute: status.Error(codes.Unavailable,
			"no answer in time: the server accepts connections and says nothing"),
	} {
		for _, scheme := range []string{"http://", "https://"} {
			synctest.Test(t, func(t *testing.T) {
				dial := func(context.Context, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					go drain(theirs)
					return ours, nil
				}
				c := connect(t, vectorstore.Config{
					Address: scheme + "localhost", CallTimeout: timeout,
					DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
				})
				g, _ := guard(t)
				_, err := g.HasCollection(t.Context(), c, "docs")
				assert.EqualError(t, err, want.Error())
				require.NoError(t, c.Close())
				synctest.Wait()
			})
		}
	}
}

// drain reads what the client sends until it leaves.
func drain(c net.Conn) {
	for b := make([]byte, 1<<10); ; {
		if _, err := c.Read(b); err != nil {
			_ = c.Close()
			return
		}
	}
}

// The words that told what was wrong were behind those that did not fit.
func TestServerThatIsNoMilvusIsSaidToBeNone(t *testing.T) {
	for name, row := range map[string]struct{ answer, want string }{
		"a page": {
			"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\n\r\n<html>sign in!</html>\n",
			"not a Milvus server: it answers in HTTP/1.1, and not in gRPC",
		},
		"a greeting": {
			strings.Repeat("\x1b[31mSSH-2.0-OpenSSH_9.2\r\n", 10),
			"not a Milvus server: it does not answer in gRPC: http2: frame too large",
		},
	} {
		c := connect(t, vectorstore.Config{Address: hostile.Serve(t, hostile.Text(row.answer))})
		g, _ := guard(t)
		_, err := g.HasCollection(t.Context(), c, "docs")
		assert.EqualError(t, err, status.Error(codes.Unavailable, row.want).Error(), name)
	}
}
