package pipeline

import (
	"cmp"
	"errors"

	"github.com/penstock-go/penstock/pipeline/parse"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// preparer takes documents from their bytes to their parts.
type preparer struct {
	*reader
	*decider
	*settler
	check    func() error // of the upstreams, before the first is used
	original func(id, sha string, in parse.Input) error
	cutting  *cutting
	complete func(source.Item) bool // by its listing
}

// prepare reads a document and sends its parts on, or settles it at once.
func (p *preparer) prepare(item source.Item) {
	d := newDocument(item.ID, item.Location)
	sent, err := p.read(d, item)
	over, isOver := errors.AsType[*outcome](err)
	p.count(item.Input, !isOver)
	switch {
	case isOver:
		p.pass(d, over)
	case errors.Is(err, errUnchanged):
		p.done(d, Unchanged)
	case errors.Is(err, errKnown):
		p.done(d, KnownDeadLetter)
	case errors.Is(err, stop.ErrEnded) && !sent && !d.fresh && p.complete(item): // which its content need not say
		p.done(d, Unchanged)
	case err == nil && p.dry():
		p.done(d, WouldIngest)
	case err != nil && !sent:
		p.settle(d, err)
	case err != nil: // committers hold parts of it: the last of them settles it
		d.fail(err)
		p.cutting.send(&part{doc: d, last: true})
	}
}

// read takes a document from its bytes to its parts; sent says whether a part
// is on its way.
func (p *preparer) read(d *document, item source.Item) (sent bool, err error) {
	d.stage = "read"
	if err := p.otherForm(item); err != nil {
		return false, err
	}
	if err := p.byVersion(d, item.Version); err != nil {
		return false, err
	}
	content, in, err := p.begun(d, item)
	if err != nil {
		err = p.unread(err, func(cause error) error { return p.unreadableBefore(d, cause) })
		return false, p.unlessWaiting(item, err)
	}
	defer content.Close()
	if versioned, ok := content.(interface{ Version() string }); ok {
		d.version = versioned.Version()
	}
	d.current = p.currency(item, content)
	if err := p.known(d, in); err != nil {
		return false, err
	}
	d.fresh = true
	if err := p.keep(d, in); err != nil {
		return false, err
	}
	return p.cutting.cut(d, in)
}

// begun opens a document and sets the hash of its content. One that never is
// text is passed over without reading all of it.
func (p *preparer) begun(d *document, item source.Item) (content source.Content, in parse.Input, err error) {
	defer p.cutting.timed("read")()
	content, in, err = p.begin(item)
	if err != nil {
		return nil, in, err
	}
	if item.Input != "" {
		_, refusal := p.cutting.Parsers.Detect(in)
		if o := skipped(refusal); o != nil {
			return nil, in, errors.Join(p.skip(d, o), content.Close())
		}
	}
	if d.sha, err = p.hashOf(in); err != nil {
		return nil, in, errors.Join(err, content.Close())
	}
	d.size = in.Size
	return content, in, nil
}

// unlessWaiting drops what the journal says of a document that waits, if its
// store has it no longer. A file may be on a volume that is not mounted: it
// waits until the listing of its folder shows that it is gone.
func (p *preparer) unlessWaiting(item source.Item, err error) error {
	over, ok := errors.AsType[*outcome](err)
	if !ok || over.result != Gone || !item.Remote() {
		return err
	}
	return cmp.Or(p.decider.waitsNoLonger(item.ID), err)
}

// otherForm drops what the journal says of a document that was refused for its
// name: no other file has the ID any more.
func (p *preparer) otherForm(item source.Item) error {
	if item.Alias == "" {
		return nil
	}
	return p.decider.dismiss(item.Alias)
}

// known decides about a document that has been read.
func (p *preparer) known(d *document, in parse.Input) error {
	d.stage = "parse"
	format, err := p.cutting.Parsers.Detect(in)
	p.policies(d, format)
	if err != nil {
		return cmp.Or(p.deadBefore(d), p.unparsed(err))
	}
	d.parser, d.streams = format.Parser, format.Streams
	return p.byContent(d)
}

// keep checks the upstreams, for the first document that needs them, and keeps
// the original.
func (p *preparer) keep(d *document, in parse.Input) error {
	if p.dry() {
		return nil
	}
	if err := p.check(); err != nil {
		return err
	}
	d.stage = "original"
	return p.original(d.id, d.sha, in)
}

func (p *preparer) dry() bool { return p.cutting.DryRun }
