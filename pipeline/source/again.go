package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Place is a document found by an earlier run: its ID and its Item's Location.
type Place struct{ ID, Location string }

// Gone reports whether the place was a file on this machine that is there no
// more. It asks no upstream.
func (p Place) Gone() bool {
	if p.Location == "" || strings.Contains(p.Location, "://") {
		return false
	}
	_, err := os.Lstat(p.Location)
	return isGone(err)
}

// Again yields documents found by an earlier run. A place without a location
// yields an [*Error].
func Again(places iter.Seq2[Place, error], options Options) iter.Seq2[Item, error] {
	in := newInputs(options)
	return func(yield func(Item, error) bool) {
		for place, err := range places {
			item := Item{}
			if err == nil {
				item, err = in.again(place)
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

func (in *Inputs) again(place Place) (Item, error) {
	switch scheme, rest, ok := strings.Cut(place.Location, "://"); {
	case place.Location == "":
		return Item{}, &Error{Path: place.ID, Err: errOnce}
	case ok && scheme == "s3":
		bucket, _, _ := strings.Cut(rest, "/")
		return (&objects{store: in.store, bucket: bucket}).again(place.ID, place.Location), nil
	case ok && (scheme == "http" || scheme == "https"):
		address, err := url.Parse(place.Location)
		if err != nil {
			return Item{}, &Error{Path: place.ID, Err: err}
		}
		return (&page{web: in.web, address: address}).again(place.ID, place.Location), nil
	}
	return fileItem(place.ID, place.Location, place.Location, -1), nil
}

// Census records a listing, to find out afterwards which documents of an
// earlier one are gone. It takes 16 bytes per document.
type Census struct {
	in     *Inputs
	found  []int // by root
	Errors int   // what could not be listed

	mu   sync.Mutex
	seen map[[16]byte]struct{}
}

// Census returns a new Census of these inputs.
func (in *Inputs) Census() *Census {
	return &Census{in: in, seen: map[[16]byte]struct{}{}, found: make([]int, len(in.roots))}
}

// All is [Inputs.All], recorded. It must be read to its end.
func (c *Census) All(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for item, err := range c.in.All(ctx) {
			c.note(item, err)
			if !yield(item, err) {
				c.Errors++ // nothing is known of the rest
				return
			}
		}
	}
}

func (c *Census) note(item Item, err error) {
	if collision, ok := errors.AsType[*CollisionError](err); ok {
		c.saw(collision.Alias)
		return
	}
	if _, empty := errors.AsType[*EmptyError](err); empty {
		return
	}
	if err != nil {
		c.Errors++
		return
	}
	c.saw(item.ID)
	for i, r := range c.in.roots {
		if r.covers(item.Location) {
			c.found[i]++
		}
	}
}

func (c *Census) saw(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[short(id)] = struct{}{}
}

// Skip takes a document out of the census that was found and has no text any
// more: what an earlier run made of it is gone. It may be called while the
// listing is read.
func (c *Census) Skip(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, short(id))
}

// Gone reports whether a document that was read from a location no longer
// exists: the location belongs to an input, and the listing did not contain the
// document. empty is the name of that input if the listing found nothing in it
// at all.
func (c *Census) Gone(id, location string) (gone bool, empty string) {
	if c.has(id) {
		return false, ""
	}
	for i, r := range c.in.roots {
		if r.covers(location) {
			if gone = true; c.found[i] > 0 {
				return true, ""
			}
			empty = r.input
		}
	}
	return gone, empty
}

// Missing is Gone for a document that only waits to be ingested: it is false
// where the input of the document is empty, or where something could not be
// listed.
func (c *Census) Missing(id, location string) bool {
	gone, empty := c.Gone(id, location)
	return gone && empty == "" && c.Errors == 0
}

// Emptied returns the input that a document was read from, if the listing found
// nothing in it at all, not even a failure.
func (c *Census) Emptied(id, location string) (input string) {
	if _, input = c.Gone(id, location); c.Errors > 0 {
		return ""
	}
	return input
}

func (c *Census) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.seen[short(id)]
	return there
}

// covers reports whether a listing of the root proves whether a location
// exists. A single file is not a listing.
func (r root) covers(location string) bool {
	switch {
	case location == "" || r.err != nil:
		return false
	case r.remote != nil:
		return r.remote.covers(location)
	case !r.dir && r.glob == "":
		return false
	}
	absolute, err := filepath.Abs(r.path)
	if err != nil {
		return false
	}
	below, err := filepath.Rel(absolute, location)
	if err != nil || !filepath.IsLocal(below) {
		return false
	}
	return r.glob == "" || matches(r.glob, below)
}

func short(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}
