package pipeline

import (
	"context"
	"fmt"
)

// Finding is what Doctor says of one upstream.
type Finding struct {
	Upstream string `json:"upstream"`
	OK       bool   `json:"ok"`
	Detail   string `json:"detail"`         // what was found, or what is wrong
	Hint     string `json:"hint,omitempty"` // how to mend it
	// Stop is the end that a run would come to here; nil when OK.
	Stop *StopError `json:"-"`
}

// Doctor reaches each upstream once and says what is wrong. It writes nothing.
// The chat model is asked only where there is enrichment.
func (p *Pipeline) Doctor(ctx context.Context) []Finding {
	findings := []Finding{
		p.examine(ctx, upstreamS3, func(c *check) (string, error) {
			there, err := c.hasBucket()
			if err == nil && !there && p.CreateBucket {
				return fmt.Sprintf("bucket %q will be made by the first run", p.Bucket), nil
			}
			if err == nil && !there {
				err = c.noBucket()
			}
			return fmt.Sprintf("bucket %q is there", p.Bucket), err
		}),
		p.examine(ctx, upstreamMilvus, func(c *check) (string, error) {
			found, err := c.collection()
			if err != nil || found == nil {
				return fmt.Sprintf("collection %q will be made by the first run", p.Collection), err
			}
			return fmt.Sprintf("collection %q is there", p.Collection), c.sameModel(found)
		}),
		p.examine(ctx, upstreamLLM, func(c *check) (string, error) {
			dims, err := c.model()
			return fmt.Sprintf("model %q answers with %d dimensions", p.Model, dims), err
		}),
	}
	if !p.Enrich.on() {
		return findings
	}
	return append(findings, p.examine(ctx, upstreamLLM, func(c *check) (string, error) {
		return fmt.Sprintf("chat model %q answers", p.Enrich.Model), c.run.enrich.chat.ready()
	}))
}

func (p *Pipeline) examine(ctx context.Context, up upstream, look func(*check) (string, error)) Finding {
	r := newRun(ctx, p)
	defer r.cancel(errStopped)
	detail, err := look(r.check)
	if err == nil {
		return Finding{Upstream: up.name, OK: true, Detail: detail}
	}
	stop := r.end.reason()
	if stop == nil {
		stop = &StopError{Kind: StopFault, Upstream: up.name, Err: err}
	}
	return Finding{Upstream: up.name, Detail: stop.Err.Error(), Hint: hints[stop.Kind], Stop: stop}
}

var hints = map[StopKind]string{
	StopDeferred:      "check that it runs and that its address is right; if it does, wait",
	StopDenied:        "check the credentials and the quota",
	StopConfiguration: "change the configuration as it says",
	StopInterrupted:   "run it again and wait for the answer",
	StopFault:         "report it",
}
