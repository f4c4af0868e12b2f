package upstreams

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// S3 is what a client needs to reach an object store. Addressing is by path.
type S3 struct {
	Endpoint  string // http://host:port
	Region    string
	AccessKey string
	SecretKey string
	Bucket    string // exists
}

func s3At(addr string) S3 {
	return S3{
		Endpoint: "http://" + addr, Region: "us-east-1",
		AccessKey: "penstock", SecretKey: "penstock-secret", Bucket: "penstock",
	}
}

// LlamaURL returns the base URL of a server that StartLlama started.
func LlamaURL(p *Process) string { return "http://" + p.Addr + "/v1" }

var (
	//go:embed serve_milvus.py
	serveMilvus string
	//go:embed serve_llama.py
	serveLlama string
)

func milvusSpec() (Spec, error) {
	python, err := inEnvironment("Milvus", "venv", "python")
	if err != nil {
		return Spec{}, err
	}
	folder, err := Folder()
	return Spec{
		Name: "milvus", Ports: 1,
		Command: func(dir string, ports []int) *exec.Cmd {
			return exec.Command(python, "-c", serveMilvus,
				strconv.Itoa(ports[0]), filepath.Join(dir, "data"), filepath.Join(folder, "milvus"))
		},
		Ready: func(ctx context.Context, addr string) error {
			return ask(ctx, http.MethodGet, "http://"+addr+"/v1/vector/collections", "")
		},
	}, err
}

func seaweedSpec() (Spec, error) {
	weed, err := inEnvironment("SeaweedFS", "venv", "weed")
	return Spec{
		Name: "seaweedfs", Ports: len(seaweedPorts),
		Command: func(dir string, ports []int) *exec.Cmd {
			s3 := s3At("")
			args := []string{
				"mini", "-dir=" + dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-bucket=" + s3.Bucket,
				"-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
				"-master.volumeSizeLimitMB=64", "-volume.max=1000", // whatever the size of the disk
				"-s3.localSocket=" + filepath.Join(dir, "s3.sock"),
				"-filer.localSocket=" + filepath.Join(dir, "filer.sock"),
			}
			for i, name := range seaweedPorts {
				args = append(args, fmt.Sprintf("-%s=%d", name, ports[i]))
			}
			cmd := exec.Command(weed, args...)
			cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+s3.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3.SecretKey,
				"TMPDIR="+dir) // for its logs
			return cmd
		},
		Ready: seaweedReady,
		Litter: func(ports []int) (sockets []string) {
			for i, name := range seaweedPorts {
				if part, ok := strings.CutSuffix(name, ".port.grpc"); ok {
					sockets = append(sockets, fmt.Sprintf("/tmp/seaweedfs-%s-grpc-%d.sock", part, ports[i]))
				}
			}
			return sockets
		},
	}, err
}

var seaweedPorts = []string{
	"s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
	"filer.port", "filer.port.grpc", "admin.port", "admin.port.grpc",
}

// seaweedReady writes an object: the gateway answers long before it has a place
// to put one.
func seaweedReady(ctx context.Context, addr string) error {
	s3 := s3At(addr)
	if err := s3.send(ctx, http.MethodHead, s3.Bucket); err != nil {
		return err
	}
	if err := s3.send(ctx, http.MethodPut, s3.Bucket+"/ready"); err != nil {
		return err
	}
	return s3.send(ctx, http.MethodDelete, s3.Bucket+"/ready")
}

func (s S3) send(ctx context.Context, method, path string) error {
	body := ""
	if method == http.MethodPut {
		body = "ready"
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Endpoint+"/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(body))
	sum := hex.EncodeToString(hash[:])
	req.Header.Set("X-Amz-Content-Sha256", sum)
	key := aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}
	if err := v4.NewSigner().SignHTTP(ctx, key, req, sum, "s3", s.Region, time.Now()); err != nil {
		return err
	}
	return do(req)
}

func llamaSpec() (Spec, error) {
	python, err := inEnvironment("llama.cpp", "venv", "python")
	return Spec{
		Name: "llama", Ports: 1,
		Command: func(_ string, ports []int) *exec.Cmd {
			return exec.Command(python, "-c", serveLlama, strconv.Itoa(ports[0]))
		},
		Ready: func(ctx context.Context, addr string) error {
			return ask(ctx, http.MethodPost, "http://"+addr+"/v1/embeddings", `{"model":"smollm2","input":["ready"]}`)
		},
	}, err
}

// ask sends one request with a body of JSON and takes any answer but 200 for an
// error.
func ask(ctx context.Context, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return do(req)
}

// do closes its connections: one that is kept open is a goroutine that looks
// like a leak of the test.
func do(req *http.Request) error {
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(body))
	}
	return err
}
