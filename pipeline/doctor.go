package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// Finding is what Findings says of one upstream.
type Finding struct {
	Upstream string `json:"upstream"`
	Chat     bool   `json:"chat,omitempty"` // about the chat model, not the embedding model
	OK       bool   `json:"ok"`
	Address  string `json:"address,omitempty"` // where it was looked for, of Config.Places
	Detail   string `json:"detail"`            // what was found, or what is wrong
	Hint     string `json:"hint,omitempty"`    // how to fix it
	// RetryAt is when a run may succeed; nil where time does not help.
	RetryAt *time.Time `json:"retry_at,omitempty"`
	// Stop is the end that a run would come to here; nil when OK.
	Stop *StopError `json:"-"`
}

// SilenceError says that an upstream did not answer in time.
type SilenceError struct{ Waited time.Duration }

func (e *SilenceError) Error() string { return fmt.Sprintf("no answer within %s", e.Waited) }

// Findings reaches each upstream once and says what is wrong, one after the
// other as the sequence is read. It writes nothing. The chat model is asked
// only where there is enrichment. An upstream that does not answer within
// Config.DoctorWait is found silent, see [SilenceError].
func (p *Pipeline) Findings(ctx context.Context) iter.Seq[Finding] {
	return func(yield func(Finding) bool) {
		var stored *entity.Collection
		vectors := func(r *run) (detail string, err error) {
			stored, detail, err = r.examineVectors()
			return detail, err
		}
		model := func(r *run) (string, error) { return r.examineModel(stored) }
		_ = yield(p.examine(ctx, service.ObjectStore, (*run).examineObjects)) &&
			yield(p.examine(ctx, service.VectorStore, vectors)) &&
			yield(p.examine(ctx, service.Model, model)) &&
			p.config.Enrich.on() && yield(p.examineChat(ctx))
	}
}

func (p *Pipeline) examineChat(ctx context.Context) Finding {
	f := p.examine(ctx, service.Model, func(r *run) (string, error) {
		return fmt.Sprintf("chat model %q answers", r.Enrich.Model), r.enrich.Check(r.ctx)
	})
	f.Chat = true
	return f
}

// examineModel also compares the model's vectors with those of the collection,
// unless that is nil.
func (r *run) examineModel(stored *entity.Collection) (string, error) {
	dims, err := r.check.model()
	if err == nil && stored != nil {
		err = r.check.fits(stored, rows.NewRecord(r.Model, dims))
	}
	return fmt.Sprintf("model %q answers with %d dimensions", r.Model, dims), err
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

// examineVectors returns the collection, nil unless it is one of this model.
func (r *run) examineVectors() (*entity.Collection, string, error) {
	found, err := r.check.collection()
	if err != nil || found == nil {
		return nil, fmt.Sprintf("collection %q will be created by the first run", r.Collection), err
	}
	if err := r.check.sameModel(found); err != nil {
		return nil, "", err
	}
	return found, fmt.Sprintf("collection %q exists", r.Collection), nil
}

func (p *Pipeline) examine(ctx context.Context, upstream string, look func(*run) (string, error)) Finding {
	silent := &SilenceError{Waited: p.config.DoctorWait}
	ctx, cancel := context.WithTimeoutCause(ctx, silent.Waited, silent)
	defer cancel()
	f := Finding{Upstream: upstream, Address: p.config.Places[upstream].Address}
	detail, ended := p.look(ctx, upstream, look)
	if ended != nil {
		f.failed(ended)
		return f
	}
	f.OK, f.Detail = true, detail
	return f
}

// look returns what was found, or the end that a run would come to.
func (p *Pipeline) look(
	ctx context.Context, upstream string, look func(*run) (string, error),
) (string, *StopError) {
	config := p.config
	config.Grace = time.Nanosecond // no answer is worth waiting for after the end
	r, err := newRun(ctx, config, p.chunker)
	if err != nil {
		return "", &StopError{Kind: StopConfiguration, Err: err}
	}
	defer r.close()
	detail, err := look(r)
	if err == nil {
		return detail, nil
	}
	if silent, ok := errors.AsType[*SilenceError](context.Cause(ctx)); ok {
		return "", stop.Later(upstream, time.Time{}, silent)
	}
	if ended := r.end.Reason(); ended != nil {
		return "", ended
	}
	return "", &StopError{Kind: StopFault, Upstream: upstream, Err: err}
}

func (f *Finding) failed(ended *StopError) {
	f.Detail, f.Hint, f.Stop = ended.Err.Error(), hints[ended.Kind], ended
	if f.RetryAt = ended.Report(nil).RetryAt; f.RetryAt != nil {
		f.Hint += " after " + f.RetryAt.Format(time.RFC3339)
	}
}

var hints = map[StopKind]string{
	StopDeferred:      "check that it is running and that its address is right; otherwise wait and run again",
	StopDenied:        "check the credentials and the quota",
	StopConfiguration: "change the configuration accordingly",
	StopInterrupted:   "run it again and wait for the answer",
	StopFault:         "report a bug",
}
