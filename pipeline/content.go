package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
	"github.com/penstock-go/penstock/resilience"
)

// heldBytes is the size up to which a document is read once, into memory.
const heldBytes = 4 << 20

// reader reads documents from their sources.
type reader struct {
	*scope
	objects *service.Service // where sources of an object store are
}

// open reads a document and gives the hash of its content.
func (r *reader) open(item source.Item) (content source.Content, in parse.Input, sha string, err error) {
	defer r.timed("read")()
	if content, in, err = r.begin(item); err != nil {
		return nil, in, "", err
	}
	if sha, err = r.hashOf(in); err != nil {
		return nil, in, "", errors.Join(err, content.Close())
	}
	return content, in, sha, nil
}

// begin opens a document for reading.
func (r *reader) begin(item source.Item) (content source.Content, in parse.Input, err error) {
	if content, err = r.fetch(item); err != nil {
		return nil, in, err
	}
	in, err = hold(parse.Input{Name: item.ID, Content: whole{content, content.Size()}, Size: content.Size()})
	if err != nil {
		return nil, in, errors.Join(err, content.Close())
	}
	return content, in, nil
}

// fetch opens a document; one in an object store counts as a call to that.
func (r *reader) fetch(item source.Item) (content source.Content, err error) {
	if item.Upstream == "" {
		return item.Open(r.ctx)
	}
	err = r.objects.Within(r.ctx, "get_object", func(counted func(resilience.Verdict)) error {
		content, err = item.Open(r.ctx) // which tells the guard of the source
		counted(stop.VerdictOf(err))
		return err
	})
	return content, err
}

// remoteAge is how long ago a remote source was read when it is asked about its
// content again. Another run needs a while to overtake this one, and a call for
// each document would be dear.
const remoteAge = 5 * time.Second

// currency is how to ask whether a source still has the content that was read;
// nil where there is no way.
func (r *reader) currency(item source.Item, content source.Content) func(context.Context) (bool, error) {
	asks, ok := content.(interface {
		Current(ctx context.Context) (bool, error)
	})
	if !ok {
		return nil
	}
	read := time.Now().Round(0) // by the wall clock, which a machine that sleeps keeps
	return func(ctx context.Context) (current bool, err error) {
		switch {
		case !item.Remote():
			return asks.Current(ctx)
		case time.Now().Round(0).Sub(read) < remoteAge:
			return true, nil
		case item.Upstream == "":
			return asks.Current(ctx)
		}
		err = r.objects.Within(ctx, "head_object", func(counted func(resilience.Verdict)) error {
			current, err = asks.Current(ctx)
			counted(stop.VerdictOf(err))
			return err
		})
		return current, err
	}
}

// hold takes a small document into memory, so that hash, original and chunks
// are of the same bytes. A larger one is hashed again at its end (unmoved).
func hold(in parse.Input) (parse.Input, error) {
	if in.Size > heldBytes {
		return in, nil
	}
	content := make([]byte, in.Size)
	if _, err := io.ReadFull(io.NewSectionReader(in.Content, 0, in.Size), content); err != nil {
		return in, err
	}
	return parse.FromBytes(in.Name, content), nil
}

// whole is content whose end is io.EOF itself, at its size. Any other error of
// reading is the document's failure, at every reader.
type whole struct {
	io.ReaderAt
	size int64
}

func (w whole) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.ReaderAt.ReadAt(p, off)
	ended := err == io.EOF
	switch {
	case err == nil, ended && off+int64(n) >= w.size:
		return n, err
	case ended:
		return n, stop.Defer("read", "changed", errMoving)
	}
	return n, stop.DeadLetter("read", "unreadable", err)
}

var errMoving = errors.New("the content changed while it was read; run again when it is stable")

// hashOf gives up at the end of the run: a file may be larger than its grace.
func (r *reader) hashOf(in parse.Input) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, whileRunning{r.end, io.NewSectionReader(in.Content, 0, in.Size)}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// whileRunning reads until the run ends.
type whileRunning struct {
	run  *stop.Ending
	from io.Reader
}

func (w whileRunning) Read(p []byte) (int, error) {
	if w.run.Over() {
		return 0, stop.ErrEnded
	}
	return w.from.Read(p)
}

// unmoved checks that a document that was read more than once was the same
// each time.
func (r *reader) unmoved(in parse.Input, sha string) error {
	if in.Size <= heldBytes {
		return nil
	}
	again, err := r.hashOf(in)
	switch {
	case errors.Is(err, stop.ErrEnded):
		return err
	case err != nil:
		return r.unparsed(err)
	case again != sha:
		return stop.Defer("read", "changed", errMoving)
	}
	return nil
}

// unread says what a failure to read the bytes means: the end of the run, a
// source to come back to, or an unreadable file. known is asked about the last
// alone.
func (r *reader) unread(err error, known func(cause error) error) error {
	if f, ok := errors.AsType[*stop.Failure](err); ok {
		if f.Deferred {
			return f
		}
		err = f.Err
	}
	if passed, ok := errors.AsType[*outcome](err); ok {
		return passed
	}
	_, ofStore := errors.AsType[*stop.CallError](err)
	_, unusable := errors.AsType[*stop.Error](err)
	away, ok := errors.AsType[*source.AwayError](err)
	_, large := errors.AsType[*source.TooLargeError](err)
	switch {
	case r.end.Stopped(err):
		return stop.ErrEnded
	case errors.Is(err, fs.ErrNotExist):
		return gone()
	case ofStore || unusable:
		return r.end.Blame("read", err)
	case ok:
		return stop.Defer("read", "source unavailable", away)
	case large:
		return stop.DeadLetter("read", parse.TooLarge, err)
	}
	if err := known(err); err != nil {
		return err
	}
	return stop.DeadLetter("read", "unreadable", err)
}

// unparsed distinguishes a document that cannot be parsed, or read, from the
// end of the run.
func (r *reader) unparsed(err error) error {
	refused, ok := errors.AsType[*parse.Error](err)
	f, own := errors.AsType[*stop.Failure](err)
	switch {
	case ok && refused.Later:
		return stop.Defer("parse", refused.Kind, err)
	case ok:
		return stop.DeadLetter("parse", refused.Kind, err)
	case r.end.Stopped(err) || errors.Is(err, context.Canceled):
		return stop.ErrEnded
	case own:
		return f
	}
	return stop.DeadLetter("read", "unreadable", err)
}
