package upstreams

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// redisSpec is a server with options of its command line.
func redisSpec(options ...string) (Spec, error) {
	redis, err := program("redis-server")
	return Spec{
		Name: "redis", Ports: 1,
		Command: func(dir string, ports []int) *exec.Cmd {
			return exec.Command(redis, append(redisOptions(dir, ports[0]), options...)...)
		},
		Ready: redisReady,
	}, err
}

func redisOptions(dir string, port int) []string {
	return []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir}
}

func redisNodeSpec() (Spec, error) {
	spec, err := redisSpec()
	redis := spec.Command
	spec.Ports = 2
	spec.Command = func(dir string, ports []int) *exec.Cmd {
		cmd := redis(dir, ports)
		cmd.Args = append(cmd.Args, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			"--cluster-port", strconv.Itoa(ports[1]))
		return cmd
	}
	return spec, err
}

// redisSentinelSpec is a Sentinel, which is a redis-server that rewrites its
// file of settings.
func redisSentinelSpec(master *Process) (Spec, error) {
	redis, err := program("redis-server")
	host, port, _ := net.SplitHostPort(master.Addr)
	settings := strings.Join([]string{
		"sentinel monitor breakers " + host + " " + port + " 1",
		"sentinel down-after-milliseconds breakers 1000",
		"sentinel failover-timeout breakers 5000",
	}, "\n")
	return Spec{
		Name: "sentinel", Ports: 1,
		Command: func(dir string, ports []int) *exec.Cmd {
			file := filepath.Join(dir, "sentinel.conf")
			// Without it the server does not start, and says why.
			_ = os.WriteFile(file, []byte(settings), 0o600)
			return exec.Command(redis, append([]string{file, "--sentinel"}, redisOptions(dir, ports[0])...)...)
		},
		Ready: redisReady,
	}, err
}

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
	if err == nil && strings.TrimSpace(line) != "+PONG" && !strings.HasPrefix(line, "-NOAUTH ") {
		err = fmt.Errorf("unexpected answer %q", line)
	}
	return err
}
