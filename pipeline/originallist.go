package pipeline

import (
	"bytes"
	"fmt"
	"iter"
	"sort"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// held is an original as a listing shows it, in 88 bytes.
type held struct {
	document hash // of its id
	sha      hash // of its content; zero for the name of a document
	size     int64
	modified int64 // seconds of Unix time
	old      bool  // its key does not name the destination
	known    bool  // journal or store know the document; set on its first original
}

func (h hash) compare(other hash) int { return bytes.Compare(h[:], other[:]) }

// stretchOriginals bounds how many originals are in memory at a time: 23 MB.
// The journal is read once for each so many.
const stretchOriginals = 1 << 18

// stretch is a part of a listing: the originals of all documents whose hashes
// are in a range.
type stretch struct {
	list        []held // by document
	after, upTo hash   // the range; after is not in it
	first, last bool   // it has no lower, no upper end
}

// covers reports whether a document's originals would be in this stretch.
func (s *stretch) covers(document hash) bool {
	return (s.first || document.compare(s.after) > 0) && (s.last || document.compare(s.upTo) <= 0)
}

// of are the originals of a document.
func (s *stretch) of(document hash) []held {
	from := sort.Search(len(s.list), func(i int) bool { return s.list[i].document.compare(document) >= 0 })
	to := from
	for to < len(s.list) && s.list[to].document == document {
		to++
	}
	return s.list[from:to]
}

// documents yields the originals of each document.
func (s *stretch) documents() iter.Seq[[]held] {
	return func(yield func([]held) bool) {
		for from := 0; from < len(s.list); {
			all := s.of(s.list[from].document)
			if !yield(all) {
				return
			}
			from += len(all)
		}
	}
}

// stretches cuts a sorted listing between documents.
func stretches(listing iter.Seq2[held, error], most int) iter.Seq2[*stretch, error] {
	return func(yield func(*stretch, error) bool) {
		s := &stretch{first: true}
		for one, err := range listing {
			if err != nil {
				yield(nil, err)
				return
			}
			if n := len(s.list); n >= most && s.list[n-1].document != one.document {
				s.upTo = s.list[n-1].document
				if !yield(s, nil) {
					return
				}
				s = &stretch{list: s.list[:0], after: s.upTo}
			}
			s.list = append(s.list, one)
		}
		s.last = true
		yield(s, nil)
	}
}

// merged joins two sorted listings.
func merged(a, b iter.Seq2[held, error]) iter.Seq2[held, error] {
	return func(yield func(held, error) bool) {
		next, stop := iter.Pull2(b)
		defer stop()
		other, err, more := next()
		for one, failed := range a {
			for more && failed == nil && (err != nil || other.document.compare(one.document) < 0) {
				if !yield(other, err) || err != nil {
					return
				}
				other, err, more = next()
			}
			if !yield(one, failed) || failed != nil {
				return
			}
		}
		for more && yield(other, err) && err == nil {
			other, err, more = next()
		}
	}
}

// unorderedError reports a bucket whose keys are not listed in order, such as a
// directory bucket: its originals cannot be compared with the journal.
type unorderedError struct{ bucket, key string }

func (e *unorderedError) Error() string {
	return fmt.Sprintf("bucket %q does not list its keys in order (%s comes too late), so its originals cannot be "+
		"compared with the journal; keep them in a bucket of the general kind", e.bucket, e.key)
}

// listOriginals lists the originals on a shelf by document, page by page. Of
// the old shelf it passes over the folders of destinations.
func (o *objects) listOriginals(of shelf) iter.Seq2[held, error] {
	return func(yield func(held, error) bool) {
		var before hash
		in := &s3.ListObjectsV2Input{Prefix: aws.String(string(of))}
		err := o.pages("verify", in, func(page *s3.ListObjectsV2Output) error {
			for _, object := range page.Contents {
				one, ok := of.held(object)
				if !ok {
					continue
				}
				if one.document.compare(before) < 0 {
					return &unorderedError{bucket: o.Bucket, key: aws.ToString(object.Key)}
				}
				before, one.old = one.document, of == oldShelf(o.Prefix)
				if !yield(one, nil) {
					return errEnough
				}
			}
			of.leap(in, page)
			return nil
		})
		if err != nil {
			yield(held{}, err)
		}
	}
}

// held reads what an object on a shelf is. Others than originals and names are
// not ok.
func (s shelf) held(object types.Object) (one held, ok bool) {
	folder, name, _ := strings.Cut(strings.TrimPrefix(aws.ToString(object.Key), string(s)), "/")
	one = held{
		document: hashed(folder), sha: hashed(name),
		size: aws.ToInt64(object.Size), modified: aws.ToTime(object.LastModified).Unix(),
	}
	return one, one.document != (hash{}) && (one.sha != (hash{}) || name == nameObject)
}

// leap has the next page begin after the folder that this one ends in, if that
// is not a document's: another destination may hold any number of originals.
func (s shelf) leap(in *s3.ListObjectsV2Input, page *s3.ListObjectsV2Output) {
	if n := len(page.Contents); n > 0 && aws.ToBool(page.IsTruncated) {
		folder, _, deeper := strings.Cut(strings.TrimPrefix(aws.ToString(page.Contents[n-1].Key), string(s)), "/")
		if deeper && hashed(folder) == (hash{}) {
			in.StartAfter, page.NextContinuationToken = aws.String(string(s)+folder+"0"), nil // "0" is what follows "/"
		}
	}
}

// orphanAge is how long an original stays without a document in journal or
// store: another machine may be about to write the rows.
const orphanAge = 24 * time.Hour

// young reports whether any original of a document may be of a run that has not
// ended.
func young(all []held, now time.Time) bool {
	for _, one := range all {
		if now.Sub(time.Unix(one.modified, 0)) < orphanAge {
			return true
		}
	}
	return false
}
