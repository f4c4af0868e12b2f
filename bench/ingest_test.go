package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/upstreams"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// python names the interpreter that has LlamaIndex; see llamaindex.py.
const python = "PENSTOCK_LLAMAINDEX"

// ingested is what both sides of BenchmarkIngest report.
type ingested struct {
	Documents, Chunks int
	Seconds           float64
	Peak              int64
}

// BenchmarkIngest takes 200 pages of the Python manual into Milvus and
// SeaweedFS, embedded by a server that answers at once and by one that takes
// 50 ms, with this module's command and with LlamaIndex.
func BenchmarkIngest(b *testing.B) {
	interpreter := os.Getenv(python)
	if interpreter == "" {
		b.Skip(python + " names no Python with LlamaIndex: nothing to compare with")
	}
	pages := somePages(b, 200)
	command := filepath.Join(b.TempDir(), "ingest")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", command, "./cmd/ingest").CombinedOutput(); err != nil {
		b.Fatal(err, string(out))
	}
	for name, delay := range map[string]time.Duration{"at once": 0, "50 ms": 50 * time.Millisecond} {
		model := llmtest.NewServer(b, llmtest.Options{Delay: delay})
		for side, run := range map[string]func(*testing.B, string, string) ingested{
			"penstock": func(b *testing.B, url,
				unique string,
			) ingested {
				return runCommand(b, command, pages, url, unique)
			},
			"llamaindex": func(b *testing.B, url,
				unique string,
			) ingested {
				return runRival(b, interpreter, pages, url, unique)
			},
		} {
			b.Run(name+"/"+side, func(b *testing.B) {
				before := model.Stats().Requests
				var got ingested
				for i := 0; b.Loop(); i++ {
					got = run(b, model.URL, unique(b, i))
				}
				b.ReportMetric(float64(got.Documents)/got.Seconds, "files/s")
				b.ReportMetric(float64(got.Chunks)/got.Seconds, "chunks/s")
				b.ReportMetric(float64(got.Peak)/(1<<20), "MB")
				b.ReportMetric(float64(model.Stats().Requests-before)/float64(b.N), "requests")
			})
		}
	}
}

// unique names a bucket and a collection of one run.
func unique(b *testing.B, run int) string {
	name := strings.NewReplacer("/", "x", "_", "x", "#", "x").Replace(strings.ToLower(b.Name()))
	return name + time.Now().Format("150405") + string(rune('a'+run%26))
}

func somePages(b *testing.B, n int) string {
	b.Helper()
	all, err := filepath.Glob(filepath.Join(upstreams.PythonDocs(b), "library", "*.html"))
	if err != nil || len(all) < n {
		b.Fatal(len(all), err)
	}
	folder := filepath.Join(b.TempDir(), "pages")
	if err := os.Mkdir(folder, 0o755); err != nil {
		b.Fatal(err)
	}
	for _, page := range all[:n] {
		content, err := os.ReadFile(page)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(page)), content, 0o644)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return folder
}

func runCommand(b *testing.B, command, pages, model, unique string) ingested {
	s3 := upstreams.SeaweedFS(b)
	cmd := exec.Command(
		command,
		"--json",
		"--state",
		b.TempDir(),
		"--s3-endpoint",
		s3.Endpoint,
		"--s3-bucket",
		unique,
		"--create-bucket",
		"--milvus",
		upstreams.Milvus(b),
		"--collection",
		unique,
		"--llm-base-url",
		model,
		"--embedding-model",
		"penstock-static-256-v1",
		pages,
	)
	out, seconds := timed(b, cmd, s3)
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var last struct {
		Summary struct{ Ingested, Chunks int }
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		b.Fatal(err, string(out))
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatal("no usage")
	}
	return ingested{
		Documents: last.Summary.Ingested,
		Chunks:    last.Summary.Chunks,
		Seconds:   seconds,
		Peak:      usage.Maxrss * 1024,
	}
}

func runRival(b *testing.B, interpreter, pages, model, unique string) ingested {
	s3 := upstreams.SeaweedFS(b)
	cmd := exec.Command(
		interpreter,
		"llamaindex.py",
		pages,
		model,
		"http://"+upstreams.Milvus(b),
		unique,
		s3.Endpoint,
		unique,
	)
	out, _ := timed(b, cmd, s3)
	var got ingested
	if err := json.Unmarshal(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:], &got); err != nil {
		b.Fatal(err, string(out))
	}
	return got
}

func timed(b *testing.B, cmd *exec.Cmd, s3 upstreams.S3) ([]byte, float64) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(
		os.Environ(),
		"AWS_ACCESS_KEY_ID="+s3.AccessKey,
		"AWS_SECRET_ACCESS_KEY="+s3.SecretKey,
		"AWS_REGION="+s3.Region,
		"AWS_DEFAULT_REGION="+s3.Region,
	)
	start := time.Now()
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err, stderr.String(), string(out))
	}
	return out, time.Since(start).Seconds()
}
