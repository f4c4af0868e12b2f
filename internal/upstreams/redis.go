package upstreams

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

func redisReady(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && strings.TrimSpace(line) != "+PONG" {
		err = fmt.Errorf("unexpected answer %q", line)
	}
	return err
}
