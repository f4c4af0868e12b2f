package filestore

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

const maxPage = 1000

func apiError(err error) (code, message string) {
	if e := smithy.APIError(nil); errors.As(err, &e) {
		return e.ErrorCode(), e.ErrorMessage()
	}
	return "InternalError", err.Error()
}

// ListObjectsV2 lists keys in byte order. The cost of a page does not depend on
// the size of the bucket: it reads the folders on its path and the trailers of
// its objects. A large folder is read once for all pages of a listing, if it
// does not change meanwhile. A damaged file is listed with size 0 and an empty
// ETag, so that it can be found, replaced and deleted. EncodingType is ignored:
// keys are returned as they are.
func (s *Store) ListObjectsV2(
	ctx context.Context, in *s3.ListObjectsV2Input, _ ...func(*s3.Options),
) (*s3.ListObjectsV2Output, error) {
	const op = "ListObjectsV2"
	if err := ctxDone(ctx, op); err != nil {
		return nil, err
	}
	bucket := aws.ToString(in.Bucket)
	if err := s.bucket(op, bucket); err != nil {
		return nil, err
	}
	p, err := newPage(ctx, op, in)
	if err != nil {
		return nil, err
	}
	if p.max > 0 {
		dir, parent := p.start(bucket)
		if _, err := p.walk(s, dir, parent); err != nil {
			return nil, diskFailure(op, err)
		}
	}
	return p.output(in), nil
}

// page collects one page of a listing while the folders are walked.
type page struct {
	ctx               context.Context
	prefix, delimiter string
	after             string // keys up to and including it are done
	skip              string // keys that begin with it are done, when not empty
	max               int

	objects  []types.Object
	prefixes []types.CommonPrefix
	next     string // the token, when there is more
}

func newPage(ctx context.Context, op string, in *s3.ListObjectsV2Input) (*page, error) {
	p := &page{
		ctx: ctx, prefix: aws.ToString(in.Prefix), delimiter: aws.ToString(in.Delimiter),
		after: aws.ToString(in.StartAfter), max: maxPage,
	}
	if in.MaxKeys != nil {
		p.max = min(max(int(*in.MaxKeys), 0), maxPage)
	}
	if in.ContinuationToken == nil {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(*in.ContinuationToken)
	if err != nil || len(text) == 0 {
		return nil, failure(op, 400, "InvalidArgument", "the continuation token is not one of this store")
	}
	p.after = string(text[1:])
	if text[0] == 'p' {
		p.skip = p.after
	}
	return p, nil
}

// start is the folder of the prefix, and what the keys in it begin with. The
// folders above may have millions of names.
func (p *page) start(bucket string) (dir, parent string) {
	end := strings.LastIndexByte(p.prefix, '/') + 1
	if len(p.prefix) > maxKey || end == 0 {
		return bucket, "" // where nothing has a prefix that is too long for a path
	}
	parts := []string{bucket}
	for seg := range strings.SplitSeq(p.prefix[:end-1], "/") {
		parts = append(parts, encode(seg)...)
	}
	return path.Join(parts...), p.prefix[:end]
}

// walk visits the folder dir, whose keys all begin with parent, in key order.
// It reports whether the listing continues.
func (p *page) walk(s *Store, dir, parent string) (bool, error) {
	names, err := s.names(dir, parent)
	if err != nil {
		return false, err
	}
	for _, name := range names[p.begin(names, parent):] {
		n, _ := decode(parent, name, isFolder(name))
		if p.done(n) {
			continue
		}
		if err := p.ctx.Err(); err != nil {
			return false, err
		}
		visit := p.walk
		if n.object {
			visit = p.add
		}
		if more, err := visit(s, path.Join(dir, n.name), n.prefix); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}

// begin is the place of the first name in a folder that may belong to this
// page.
func (p *page) begin(names []string, parent string) int {
	prefix := func(i int) string {
		n, _ := decode(parent, names[i], isFolder(names[i]))
		return n.prefix
	}
	i := sort.Search(len(names), func(i int) bool { return prefix(i) >= p.after })
	if i > 0 && strings.HasPrefix(p.after, prefix(i-1)) {
		i-- // the folder that the page before ended in
	}
	return i
}

// isFolder reports which kind a name is that this package has written.
func isFolder(name string) bool { return !strings.HasSuffix(name, objectMark) }

const (
	// rememberedNames bounds the names of the folder that is remembered: 20 MB
	// of hashes. Folders that fit a page are not worth it.
	rememberedNames = 1 << 18
	// settled is how old the last change of a folder must be: a change that
	// comes after it was read then shows in its time, on any file system.
	settled = 3 * time.Second
)

// folder is a large folder as it was read: without it, each page of a listing
// would read all of it again.
type folder struct {
	dir      string
	modified time.Time
	names    []string // in key order
}

// names are those of a folder in key order.
func (s *Store) names(dir, parent string) ([]string, error) {
	info, err := s.root.Stat(dir)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if known := s.last.Load(); known != nil && known.dir == dir && known.modified.Equal(info.ModTime()) {
		return known.names, nil
	}
	nodes, err := s.nodes(dir, parent)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.name
	}
	if n := len(names); n > maxPage && n <= rememberedNames && time.Since(info.ModTime()) > settled {
		s.last.Store(&folder{dir: dir, modified: info.ModTime(), names: names})
	}
	return names, nil
}

// absent reports that a folder is not there: nothing has its prefix, it was
// deleted meanwhile, or a file that is not of this package has its name.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }

// nodes reads a folder in key order. Siblings sort by what their keys begin
// with: no such beginning is the beginning of another's, except that of the
// object "a" and of the folder "a/", which stand in the right order.
func (s *Store) nodes(dir, parent string) ([]node, error) {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes := make([]node, 0, len(entries))
	for _, e := range entries {
		if n, ok := decode(parent, e.Name(), e.IsDir()); ok {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.prefix, b.prefix) })
	return nodes, nil
}

// done reports whether nothing at n can belong to this page.
func (p *page) done(n node) bool {
	if p.skip != "" && strings.HasPrefix(n.prefix, p.skip) {
		return true
	}
	if n.object {
		return n.prefix <= p.after || !strings.HasPrefix(n.prefix, p.prefix)
	}
	outside := !strings.HasPrefix(n.prefix, p.prefix) && !strings.HasPrefix(p.prefix, n.prefix)
	return outside || n.prefix < p.after && !strings.HasPrefix(p.after, n.prefix)
}

// add adds an object to the page, as itself or as a common prefix.
func (p *page) add(s *Store, file, key string) (bool, error) {
	if p.full() {
		p.next = p.token()
		return false, nil
	}
	if common, ok := p.common(key); ok {
		p.prefixes = append(p.prefixes, types.CommonPrefix{Prefix: aws.String(common)})
		p.after, p.skip = common, common
		return true, nil
	}
	o, err := s.listed(file, key)
	if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
		return true, nil
	}
	if err != nil {
		return false, err
	}
	p.objects = append(p.objects, o)
	p.after, p.skip = key, ""
	return true, nil
}

func (p *page) full() bool { return len(p.objects)+len(p.prefixes) >= p.max }

func (p *page) common(key string) (string, bool) {
	if p.delimiter == "" {
		return "", false
	}
	head, _, ok := strings.Cut(key[len(p.prefix):], p.delimiter)
	return p.prefix + head + p.delimiter, ok
}

func (p *page) token() string {
	kind := "k"
	if p.skip != "" {
		kind = "p"
	}
	return base64.RawURLEncoding.EncodeToString([]byte(kind + p.after))
}

func (s *Store) listed(file, key string) (types.Object, error) {
	f, err := s.root.Open(file)
	if err != nil {
		return types.Object{}, err
	}
	defer f.Close()
	r, err := readRecord(f)
	if errors.Is(err, errForeign) {
		err = nil
	}
	return types.Object{
		Key: aws.String(key), Size: aws.Int64(r.Size), ETag: aws.String(r.ETag),
		LastModified: aws.Time(r.modified), StorageClass: types.ObjectStorageClassStandard,
	}, err
}

func (p *page) output(in *s3.ListObjectsV2Input) *s3.ListObjectsV2Output {
	return &s3.ListObjectsV2Output{
		Name: in.Bucket, Prefix: in.Prefix, Delimiter: in.Delimiter, StartAfter: in.StartAfter,
		ContinuationToken:     in.ContinuationToken,
		MaxKeys:               aws.Int32(int32(p.max)),
		KeyCount:              aws.Int32(int32(len(p.objects) + len(p.prefixes))),
		Contents:              p.objects,
		CommonPrefixes:        p.prefixes,
		IsTruncated:           aws.Bool(p.next != ""),
		NextContinuationToken: optional(p.next),
	}
}
