package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/pipeline/service"
)

// Finding is what Doctor says of one upstream.
type Finding struct {
	Upstream string `json:"upstream"`
	OK       bool   `json:"ok"`
	Detail   string `json:"detail"`         // what was found, or what is wrong
	Hint     string `json:"hint,omitempty"` // how to fix it
	// RetryAt is when a run may succeed; nil where time does not help.
	RetryAt *time.Time `json:"retry_at,omitempty"`
	// Stop is the end that a run would come to here; nil when OK.
	Stop *StopError `json:"-"`
}

// Doctor reaches each upstream once and says what is wrong. It writes nothing.
// The chat model is asked only where there is enrichment.
func (p *Pipeline) Doctor(ctx context.Context) []Finding {
	findings := []Finding{
		p.examine(ctx, service.ObjectStore, (*run).examineObjects),
		p.examine(ctx, service.VectorStore, (*run).examineVectors),
		p.examine(ctx, service.Model, func(r *run) (string, error) {
			dims, err := r.check.model()
			return fmt.Sprintf("model %q answers with %d dimensions", r.Model, dims), err
		}),
	}
	if !p.config.Enrich.on() {
		return findings
	}
	return append(findings, p.examine(ctx, service.Model, func(r *run) (string, error) {
		return fmt.Sprintf("chat model %q answers", r.Enrich.Model), r.enrich.Check(r.ctx)
	}))
}

func (r *run) examineObjects() (string, error) {
	there, err := r.check.hasBucket()
	if err == nil && !there && r.CreateBucket {
		return fmt.Sprintf("bucket %q will be created by the first run", r.Bucket), nil
	}
	if err == nil && !there {
		err = r.check.noBucket()
	}
	return fmt.Sprintf("bucket %q exists", r.Bucket), err
}

func (r *run) examineVectors() (string, error) {
	found, err := r.check.collection()
	if err != nil || found == nil {
		return fmt.Sprintf("collection %q will be created by the first run", r.Collection), err
	}
	return fmt.Sprintf("collection %q exists", r.Collection), r.check.sameModel(found)
}

func (p *Pipeline) examine(ctx context.Context, upstream string, look func(*run) (string, error)) Finding {
	r, err := newRun(ctx, p.config, p.chunker)
	if err != nil {
		return finding(upstream, &StopError{Kind: StopConfiguration, Err: err})
	}
	defer r.close()
	detail, err := look(r)
	if err == nil {
		return Finding{Upstream: upstream, OK: true, Detail: detail}
	}
	ended := r.end.Reason()
	if ended == nil {
		ended = &StopError{Kind: StopFault, Upstream: upstream, Err: err}
	}
	return finding(upstream, ended)
}

func finding(upstream string, ended *StopError) Finding {
	f := Finding{Upstream: upstream, Detail: ended.Err.Error(), Hint: hints[ended.Kind], Stop: ended}
	if f.RetryAt = ended.Report(nil).RetryAt; f.RetryAt != nil {
		f.Hint += " after " + f.RetryAt.Format(time.RFC3339)
	}
	return f
}

var hints = map[StopKind]string{
	StopDeferred:      "check that it is running and that its address is right; otherwise wait and run again",
	StopDenied:        "check the credentials and the quota",
	StopConfiguration: "change the configuration accordingly",
	StopInterrupted:   "run it again and wait for the answer",
	StopFault:         "report a bug",
}
