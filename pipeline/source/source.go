// Package source finds the documents of an ingest run.
//
// [Find] accepts files, folders and globs, lists of these, URLs, buckets and
// standard input, and yields one [Item] per document, lazily and in a stable
// order. An Item's ID is the document's identity: it is part of every chunk ID,
// so the same input has the same IDs on any machine and in any working
// directory.
//
// # Identity
//
// The ID is a root name and a slash path below it, in Unicode NFC, bytes that
// are not UTF-8 written as %XX:
//
//	docs/            → docs/guide/start.md       (the folder's own name)
//	/srv/x/docs      → docs/guide/start.md
//	docs/guide/*.md  → guide/start.md            (a glob's fixed folder)
//	docs/a.md        → docs/a.md                 (a file's own folder)
//	README.md, .     → site/README.md            (in a working folder named site)
//	@list.txt        → each line's path as written, without "./", "../" or a leading slash
//	-                → the name that Options.StdinName gives it
//	s3://b/docs      → s3://b/docs/a.md          (the bucket's name and the key)
//	https://u:p@h/x  → https://h/x               (without userinfo, fragment and signature)
//
// Two inputs that would give one ID to two files are refused with
// [*CollisionError] before anything is read; Options.Prefix makes them
// distinct.
//
// # What is skipped
//
// Inside a folder or a glob, names that begin with a dot, symbolic links and
// everything that is not a regular file are skipped. A link or a dotted name
// given as an input is followed. In a bucket, keys that end with a slash and
// those of Options.ExcludeObjects are skipped.
//
// # Addresses
//
// The content of an http or https address is read up to Options.MaxDownload.
// Loopback, private, link-local and other non-public addresses are refused
// unless Options.AllowPrivate is set. The check is made after name resolution,
// when the connection is made, and again for each redirect. Content from a
// bucket or an address is spooled to an unlinked temporary file, which
// disappears with the process.
package source

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"

	"github.com/penstock-go/penstock/objectstore"
)

// Item is one document. It holds no open file.
type Item struct {
	// ID is the document's identity, see the package comment.
	ID string
	// Location is where the document is read from: an absolute file path, a URI
	// without secrets, or empty for what can be read only once.
	Location string
	// Size in bytes as listed, -1 if unknown; the content may have changed
	// since.
	Size int64
	// Version asks the source which content the document has now, as an opaque
	// text that is equal for equal contents; it gives "" when the source does
	// not say. Nil for sources that never do.
	Version func(ctx context.Context) string
	// Listed is what Version would have said when the document was listed, as
	// far as that cost no call: it is equal to the Version of the content if
	// that has not changed since. Empty where the listing does not say.
	Listed string
	// Modified is when the content was last written, by the listing; zero where
	// it does not say.
	Modified time.Time
	// Input is the folder, glob or prefix, as written, whose listing holds the
	// document; empty for one that an input names itself.
	Input string
	// Alias is the ID of the document in a [CollisionError], should there ever
	// have been one; empty for most names.
	Alias string
	// Upstream is the name of the upstream that Open calls through its door,
	// "s3", or empty.
	Upstream string
	// Open opens the content for reading. Each call opens it again. The error
	// may be a [*stop.CallError] or an [*AwayError]; one that is fs.ErrNotExist
	// says that the document is gone, and any other that it cannot be read.
	Open func(ctx context.Context) (Content, error)
}

// Remote reports whether the document comes from a bucket or an address, so
// that asking about it is a call.
func (i Item) Remote() bool { return i.Upstream != "" || strings.Contains(i.Location, "://") }

// Content is an open document. It is safe for concurrent use. Where the source
// can tell, it also has the methods
//
//	Version() string                           // as Item.Version, of this content
//	Current(ctx context.Context) (bool, error) // does the source still have it?
//
// Current may be called after Close. Its error is fs.ErrNotExist where the
// document is gone; after any other error nothing is known.
type Content interface {
	io.ReaderAt
	io.Closer
	// Size in bytes at the moment of opening.
	Size() int64
}

// AwayError reports that a source could not be reached or failed, so that
// nothing is known about the document: try again later.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return e.Err.Error() + "; run again later" }

// Unwrap returns the cause.
func (e *AwayError) Unwrap() error { return e.Err }

// TooLargeError reports that a document exceeds a limit and was not read to its
// end.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it is larger than %d bytes, the most that is downloaded (MaxDownload, --max-download)", e.Limit)
}

// Options configure [Find]. The zero value is the default.
type Options struct {
	// Prefix is prepended to each ID, followed by a slash.
	Prefix string
	// Exclude lists folders, by path, that are never entered: the state
	// folder of the run itself.
	Exclude []string

	// Stdin is what the input "-" reads, and "@-" takes a list from.
	// StdinName is its ID, and helps to choose its format. Default: "stdin".
	Stdin     io.Reader
	StdinName string

	// Objects opens the object store that s3:// inputs are read from, through
	// ObjectGuard. It is called once, if there is such an input.
	Objects     func(ctx context.Context) (ObjectReader, error)
	ObjectGuard objectstore.Guard
	// ExcludeObjects lists what is not read, each as bucket/prefix: the
	// originals that the run itself keeps.
	ExcludeObjects []string

	// AllowPrivate allows addresses of loopback and private networks, and
	// proxies.
	AllowPrivate bool
	// MaxDownload is the largest document that is read from an address, in
	// bytes. Default: 1 GB.
	MaxDownload int64
	// Timeout is how long an address may send nothing. Default: 60 s.
	Timeout time.Duration
}

// ObjectReader is the part of an object store that s3:// inputs need.
type ObjectReader interface {
	objectstore.Reader
}

// Error reports that an input, or a folder below one, could not be listed. The
// rest of the input is still listed.
type Error struct {
	Path string // as given, or as found below it
	Err  error
}

func (e *Error) Error() string {
	advice := "; check that it exists and may be read"
	if errors.Is(e.Err, errNotRegular) || errors.Is(e.Err, errOnce) {
		advice = "" // it exists, and says itself what it is
	}
	return fmt.Sprintf("cannot list %s: %v%s", e.Path, reason(e.Err), advice)
}

// Unwrap returns the cause, usually an [fs.PathError].
func (e *Error) Unwrap() error { return e.Err }

// reason drops the path that an fs.PathError repeats.
func reason(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// EmptyError reports that the listing of an input held no document.
type EmptyError struct{ Input string }

func (e *EmptyError) Error() string {
	return fmt.Sprintf("no documents in %s; check the name", e.Input)
}

// CollisionError reports that two files would have one ID.
type CollisionError struct {
	ID, First, Second string
	// Alias is an ID of its own for Second, if the names of the files differ
	// only in form: in Unicode normalization, or in bytes that are not UTF-8
	// and are written as %XX. It is the same in each listing.
	Alias string
	// Before is what an earlier listing said of it, which Error returns.
	Before string
}

func (e *CollisionError) Error() string {
	if e.Before != "" {
		return e.Before
	}
	if e.Alias != "" {
		return fmt.Sprintf("its name is another form of that of %q, and both are the document %q; rename one of them, "+
			"or ingest this one by its own path with --id-prefix", e.First, e.ID)
	}
	return fmt.Sprintf(
		"%q and %q would both be documents under the id %q; ingest them in two runs with different --id-prefix, or rename one",
		e.First,
		e.Second,
		e.ID,
	)
}

// root is a prepared input: where to search, and how to name the documents.
type root struct {
	input  string // as the user wrote it
	path   string // folder or file on disk
	name   string // first part of the ids, may be empty
	glob   string // pattern below path, or empty
	dir    bool
	err    error
	remote remote // an input that is no path, else nil
}

// remote is an input that is not on a local disk.
type remote interface {
	key() string                    // equal for inputs that are the same
	list(w *walker) (more bool)     // yields what is there
	covers(location string) bool    // a listing tells whether it is there
	again(id, location string) Item // a document that was listed before
}

// Inputs is a checked set of inputs, ready to be listed.
type Inputs struct {
	roots   []root
	options Options
	exclude []string
	web     *web
	store   *store
}

// Find checks inputs and prepares them for listing: paths of files and folders,
// globs in doublestar syntax, where ** matches across folders, http, https and
// s3 addresses, "-" for standard input, and @FILE for a file that lists inputs,
// one per line. The error is a [*CollisionError], or an [*Error] if a list
// cannot be read, an input is empty, or none of them exists.
func Find(inputs []string, options Options) (*Inputs, error) {
	in := newInputs(options)
	var roots []root
	for _, input := range inputs {
		list, err := in.expand(input)
		if err != nil {
			return nil, err
		}
		roots = append(roots, list...)
	}
	return in, in.use(roots)
}

// Files is [Find] for inputs that are all paths or globs, even if they look
// like addresses.
func Files(inputs []string, options Options) (*Inputs, error) {
	in := newInputs(options)
	roots := make([]root, len(inputs))
	for i, input := range inputs {
		roots[i] = newRoot(input)
	}
	return in, in.use(roots)
}

func newInputs(options Options) *Inputs {
	options.StdinName = cmp.Or(options.StdinName, "stdin")
	options.MaxDownload = cmp.Or(options.MaxDownload, defaultMaxDownload)
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	in := &Inputs{options: options, web: newWeb(options), store: &store{options: options}}
	for _, folder := range options.Exclude {
		if absolute, err := filepath.Abs(folder); err == nil {
			in.exclude = append(in.exclude, absolute)
		}
	}
	return in
}

// use accepts the roots unless none of them exists. An empty input is refused:
// it is usually an unset variable.
func (in *Inputs) use(roots []root) error {
	in.roots = roots
	for _, r := range roots {
		if r.input == "" {
			return &Error{Path: `""`, Err: errEmptyInput}
		}
	}
	exists := func(r root) bool { return r.err == nil }
	if len(roots) > 0 && !slices.ContainsFunc(roots, exists) {
		return &Error{Path: roots[0].input, Err: roots[0].err}
	}
	return in.dropRepeats()
}

// Missing returns why an input cannot be listed, as an [*Error], for the first
// that does not exist or is not valid; nil for none. It does not look again.
func (in *Inputs) Missing() error {
	for _, r := range in.roots {
		if r.err != nil {
			return &Error{Path: r.input, Err: r.err}
		}
	}
	return nil
}

// expand prepares one input, or those of a list.
func (in *Inputs) expand(input string) ([]root, error) {
	name, isList := strings.CutPrefix(input, "@")
	if !isList {
		return []root{in.one(input)}, nil
	}
	lines, err := in.readList(name)
	if err != nil {
		return nil, &Error{Path: input, Err: err}
	}
	if len(lines) == 0 {
		return []root{{input: input, remote: emptyList(input)}}, nil
	}
	roots := make([]root, len(lines))
	for i, line := range lines {
		roots[i] = in.one(line)
		roots[i].asWritten()
	}
	return roots, nil
}

func (in *Inputs) one(input string) root {
	switch scheme, rest, ok := strings.Cut(input, "://"); {
	case input == "-":
		return root{input: input, remote: &stdin{options: in.options}}
	case ok && strings.EqualFold(scheme, "s3"):
		return in.store.root(input, rest)
	case ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		return in.web.root(input)
	}
	return newRoot(input)
}

// emptyList is a list without inputs.
type emptyList string

func (l emptyList) key() string                { return string(l) }
func (l emptyList) covers(string) bool         { return false }
func (l emptyList) again(id, at string) Item   { return fileItem(id, at, at, -1) }
func (l emptyList) list(w *walker) (more bool) { return w.yield(Item{}, &EmptyError{Input: string(l)}) }

// readList reads the lines of a list. Empty ones are left out.
func (in *Inputs) readList(name string) ([]string, error) {
	from := in.options.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	if from == nil {
		return nil, errNoStdin
	}
	var lines []string
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := strings.TrimSuffix(scanner.Text(), "\r"); strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}

// asWritten names a root by the whole of its path: the lines of one list share
// the folder that they start from.
func (r *root) asWritten() {
	if r.remote != nil || r.err != nil {
		return
	}
	folder := r.path
	if !r.dir && r.glob == "" {
		folder = filepath.Dir(r.path)
	}
	name := filepath.ToSlash(folder)
	for strings.HasPrefix(name, "../") {
		name = name[len("../"):]
	}
	if r.name = strings.Trim(name, "/"); r.name == "." || r.name == ".." {
		r.name = ""
	}
}

func newRoot(input string) root {
	clean := filepath.Clean(input)
	info, err := os.Stat(clean)
	switch {
	case input == "":
		return root{err: errEmptyInput}
	case err == nil && info.IsDir():
		return root{input: input, path: followed(clean), name: folderName(clean), dir: true}
	case err == nil:
		return root{input: input, path: clean, name: folderName(filepath.Dir(clean))}
	case errors.Is(err, fs.ErrNotExist) && hasMeta(input):
		if !doublestar.ValidatePattern(filepath.ToSlash(clean)) {
			return root{input: input, path: clean, err: doublestar.ErrBadPattern}
		}
		base, pattern := doublestar.SplitPattern(filepath.ToSlash(clean))
		base = filepath.FromSlash(base)
		return root{input: input, path: followed(base), name: folderName(base), glob: pattern}
	}
	return root{input: input, path: clean, err: err}
}

var (
	errEmptyInput = errors.New("the path is empty")
	errNoMatch    = errors.New("no document found")
)

// followed is where a folder that is itself named leads, for a walk does not
// follow links.
func followed(folder string) string {
	info, err := os.Lstat(folder)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return folder
	}
	target, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return folder // the walk will say so
	}
	return target
}

func hasMeta(input string) bool { return strings.ContainsAny(input, "*?[{") }

// folderName returns a folder's own name, however its path is written; the root
// of a file system has none.
func folderName(folder string) string {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		absolute = folder
	}
	if filepath.Dir(absolute) == absolute {
		return ""
	}
	return filepath.Base(absolute)
}

// dropRepeats removes repeated inputs and refuses two different folders of one
// name.
func (in *Inputs) dropRepeats() error {
	type place struct{ absolute, input string }
	seen := map[string]place{}
	kept := in.roots[:0]
	for _, r := range in.roots {
		absolute, err := filepath.Abs(r.path)
		if err != nil {
			return &Error{Path: r.input, Err: err}
		}
		if r.remote != nil {
			absolute = r.remote.key()
		}
		key, at := r.key(), place{absolute: absolute + "\x00" + r.glob, input: r.input}
		before, known := seen[key]
		switch {
		case known && before.absolute == at.absolute:
			continue
		case known && r.err == nil:
			return &CollisionError{ID: r.id("", in.options.Prefix), First: before.input, Second: r.input}
		}
		seen[key] = at
		kept = append(kept, r)
	}
	in.roots = kept
	return nil
}

// key is equal for two roots whose documents would share ids.
func (r root) key() string {
	switch {
	case r.err != nil:
		return "missing\x00" + r.input
	case r.remote != nil:
		return "remote\x00" + r.remote.key()
	case r.dir:
		return "folder\x00" + r.name
	case r.glob != "":
		return "glob\x00" + r.name + "\x00" + r.glob
	}
	return "file\x00" + r.id(filepath.Base(r.path), "")
}

// id joins prefix, root name and the path below the root.
func (r root) id(below, prefix string) string {
	return identity("", path.Join(prefix, r.name, filepath.ToSlash(below)))
}

// Identity returns the ID of a document by its name in any form: in Unicode
// NFC, with bytes that are not UTF-8 written as %XX.
func Identity(name string) string { return identity("", name) }

// Alias returns the ID that the document of a name in the form of its file has,
// should another file have the ID of that name, see [CollisionError].
func Alias(name string) string { return alias(name) }

// alias is an ID for a file whose name is not its own normal form. Each byte
// beyond ASCII is written as %xx, and "./" stands before the last part of the
// name, which no path has that was cleaned, and no key that can be read: a file
// may be named as the rest is.
func alias(name string) string {
	var b strings.Builder
	last := strings.LastIndexByte(name, '/') + 1
	for i := range len(name) {
		if i == last {
			b.WriteString("./")
		}
		if c := name[i]; c < utf8.RuneSelf {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

// ascii reports whether a name has only one form.
func ascii(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf })
}

// identity is a name as an ID.
func identity(prefix, name string) string {
	if prefix != "" {
		name = prefix + "/" + name
	}
	return norm.NFC.String(escapeInvalid(name))
}

// escapeInvalid writes each byte that is not UTF-8 as %XX: a store accepts only
// text, and dropping the bytes could give two files one ID.
func escapeInvalid(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", name[i])
		} else {
			b.WriteString(name[i : i+size])
		}
		i += size
	}
	return b.String()
}

// All yields the documents in the order of the inputs, each folder sorted by
// name. A place that cannot be listed yields an [*Error] with an empty Item,
// and the listing continues; a [*CollisionError] is yielded in place of a
// second file with the same ID, and an [*EmptyError] after a folder or prefix
// without documents and in place of a list without lines. It ends early, with
// the context's error, when ctx is done.
func (in *Inputs) All(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		w := &walker{
			in: in, ctx: ctx, yield: yield, overlap: len(in.roots) > 1, seen: map[string]string{},
			forms: map[string]string{},
		}
		for _, r := range in.roots {
			if !w.root(r) {
				return
			}
		}
	}
}

// walker runs one listing. Its methods return false when the consumer stops.
type walker struct {
	in      *Inputs
	ctx     context.Context
	yield   func(Item, error) bool
	overlap bool // several roots: one file or one id may be met twice
	seen    map[string]string
	forms   map[string]string // places by ID, of names that may have other forms
	matches int               // documents in listings, and what could not be listed there
}

func (w *walker) root(r root) bool {
	switch {
	case r.err != nil:
		return w.yield(Item{}, &Error{Path: r.input, Err: r.err})
	case r.remote != nil:
		return r.remote.list(w)
	case r.dir || r.glob != "":
		return w.folder(r)
	}
	info, err := os.Stat(r.path)
	if err != nil {
		return w.yield(Item{}, &Error{Path: r.input, Err: err})
	}
	if !info.Mode().IsRegular() {
		return w.yield(Item{}, &Error{Path: r.input, Err: errNotRegular})
	}
	return w.item(r, filepath.Base(r.path), info)
}

var (
	errNotRegular = errors.New("not a regular file")
	errOnce       = errors.New("it can be read only once; pass it to a run again")
)

func (w *walker) folder(r root) bool {
	more, before := true, w.matches
	// The walk's own error is always one that visit chose to return.
	err := filepath.WalkDir(r.path, func(file string, entry fs.DirEntry, err error) error {
		if !more {
			return fs.SkipAll
		}
		return w.visit(r, file, entry, err, &more)
	})
	switch {
	case err != nil && more:
		return w.yield(Item{}, err)
	case more && w.matches > before:
	case more && r.glob != "":
		return w.yield(Item{}, &Error{Path: r.input, Err: errNoMatch})
	case more:
		return w.yield(Item{}, &EmptyError{Input: r.input})
	}
	return more
}

func (w *walker) visit(r root, file string, entry fs.DirEntry, err error, more *bool) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if err != nil && file != r.path && isGone(err) {
		return skip(entry) // since its folder was read
	}
	if err != nil {
		w.matches++
		*more = w.yield(Item{}, &Error{Path: file, Err: err})
		return skip(entry)
	}
	if file != r.path && strings.HasPrefix(entry.Name(), ".") || w.excluded(file, entry) {
		return skip(entry)
	}
	if !entry.Type().IsRegular() {
		return nil
	}
	*more = w.file(r, file, entry)
	return nil
}

func skip(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func (w *walker) excluded(file string, entry fs.DirEntry) bool {
	if !entry.IsDir() || len(w.in.exclude) == 0 {
		return false
	}
	absolute, err := filepath.Abs(file)
	return err == nil && slices.Contains(w.in.exclude, absolute)
}

func (w *walker) file(r root, file string, entry fs.DirEntry) bool {
	below, err := filepath.Rel(r.path, file)
	if err != nil {
		return w.yield(Item{}, &Error{Path: file, Err: err})
	}
	if r.glob != "" && !matches(r.glob, below) {
		return true
	}
	w.matches++
	info, err := entry.Info()
	switch {
	case err == nil:
		return w.item(r, below, info)
	case isGone(err):
		return w.item(r, below, nil) // as for one that goes a moment later
	}
	return w.yield(Item{}, &Error{Path: file, Err: err})
}

// matches reports whether the glob matches the path below its folder. The
// pattern's syntax was checked when it was split.
func matches(pattern, below string) bool {
	ok, err := doublestar.Match(pattern, filepath.ToSlash(below))
	return err == nil && ok
}

func (w *walker) item(r root, below string, info fs.FileInfo) bool {
	location := r.path
	if r.dir || r.glob != "" {
		location = filepath.Join(r.path, below)
	}
	absolute, err := filepath.Abs(location)
	if err != nil {
		return w.yield(Item{}, &Error{Path: location, Err: err})
	}
	item := fileItem(r.id(below, w.in.options.Prefix), location, absolute, -1)
	if info != nil {
		item.Size, item.Listed, item.Modified = info.Size(), fileVersion(info), info.ModTime()
	}
	if r.dir || r.glob != "" {
		item.Input = r.input
	}
	if written := path.Join(w.in.options.Prefix, r.name, filepath.ToSlash(below)); written != item.ID {
		item.Alias = alias(written)
		if twin := w.twin(r, item, below); twin != "" {
			return w.yield(Item{}, &CollisionError{ID: item.ID, First: twin, Second: absolute, Alias: item.Alias})
		}
	}
	return w.emit(item)
}

// twin returns another file with the same ID as one whose name is not its own
// normal form: a file of that form, or one seen before.
func (w *walker) twin(r root, item Item, below string) string {
	if before := w.form(item); before != "" {
		return before
	}
	folder := r.path
	if !r.dir && r.glob == "" {
		if w.in.options.Prefix != "" {
			return "" // the way out: an ID that its folder does not have
		}
		folder = filepath.Dir(r.path)
	}
	normal := filepath.Join(folder, filepath.FromSlash(Identity(filepath.ToSlash(below))))
	this, err := os.Lstat(item.Location)
	other, otherErr := os.Lstat(normal)
	if err != nil || otherErr != nil || !other.Mode().IsRegular() || os.SameFile(this, other) {
		return ""
	}
	return normal
}

// form remembers where the document of an ID is, for names that may have other
// forms, and returns another place that was seen before.
func (w *walker) form(item Item) (before string) {
	before, known := w.forms[item.ID]
	if !known {
		w.forms[item.ID] = item.Location
	}
	if before == item.Location {
		return ""
	}
	return before
}

// emit yields a document unless its ID was already used.
func (w *walker) emit(item Item) bool {
	if w.overlap {
		before, known := w.seen[item.ID]
		if known && before == item.Location {
			return true
		}
		if known {
			return w.yield(Item{}, &CollisionError{ID: item.ID, First: before, Second: item.Location})
		}
		w.seen[item.ID] = item.Location
	}
	return w.yield(item, nil)
}

// fileItem is a document in a file; messages use the path as written.
func fileItem(id, path, absolute string, size int64) Item {
	open := func(context.Context) (Content, error) { return OpenFile(path) }
	return Item{ID: id, Location: absolute, Size: size, Open: open}
}

// file is an open regular file as it was when it was opened.
type file struct {
	*os.File
	location string
	info     fs.FileInfo
}

func (f file) Size() int64 { return f.info.Size() }

// Version is made of the modification time and the size.
func (f file) Version() string { return fileVersion(f.info) }

func fileVersion(info fs.FileInfo) string {
	return fmt.Sprintf("%d/%d", info.ModTime().UnixNano(), info.Size())
}

// Current reports whether the file is still the one that was opened, and has
// not been written since.
func (f file) Current(context.Context) (bool, error) {
	now, err := os.Stat(f.location)
	if err != nil {
		return false, err
	}
	return os.SameFile(f.info, now) && f.info.Size() == now.Size() && f.info.ModTime().Equal(now.ModTime()), nil
}

// OpenFile opens regular files only: a pipe would block its reader until there
// is a writer, even after a signal. The error is fs.ErrNotExist where a folder
// of the path is a file, too.
func OpenFile(location string) (Content, error) {
	file, err := openFile(location)
	if isGone(err) && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return file, err
}

func openFile(location string) (Content, error) {
	info, err := os.Stat(location)
	if err := regular(location, info, err); err != nil {
		return nil, err
	}
	f, err := os.Open(location)
	if err != nil {
		return nil, err
	}
	info, err = f.Stat()
	if err := regular(location, info, err); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return file{File: f, location: location, info: info}, nil
}

// isGone reports whether an error of the file system says that a file is no
// longer there, its folder included.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }

func regular(location string, info fs.FileInfo, err error) error {
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: location, Err: errNotRegular}
	}
	return err
}
