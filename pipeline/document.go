package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/penstock-go/penstock/pipeline/enrich"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/rows"
	"github.com/penstock-go/penstock/pipeline/version"
)

// document is one document on its way through a run.
type document struct {
	identity
	decision
	tally
	progress

	stage    string // where it is, for a failure that does not say
	unlisted bool   // its failure is reported and not kept in the journal
	found    bool   // a deletion has found something of it
	more     *enrichment
}

// identity says which document this is, and in which version.
type identity struct {
	id       string
	location string // where it can be read again
	sha      string // of the content
	size     int64  // of the content, in bytes
	version  string // the source's name for the content, such as an ETag
	// current says whether the source still has the content that was read; nil
	// where it cannot.
	current func(context.Context) (bool, error)
	parser  string // its name
	streams bool   // it reads documents of any size
}

// decision is what is to become of the document, by what journal and store hold
// of it.
type decision struct {
	policy string // that its rows are made by
	plain  string // the policy without enrichment
	rich   string // the policy with the enrichment of this run

	fresh     bool   // it has been read, and is not complete in this version
	recorded  bool   // the journal calls it complete, in this version or another
	before    string // the policy by which the journal knows this content, apart from its enrichment; empty for none
	enriching bool   // it is enriched in this run
	adopted   bool   // the store holds it complete and enriched, and it stays so
	pending   bool   // of an adopted one: enrichment is still to come
}

// tally counts what was done for the document.
type tally struct {
	chunks, tokens, embedded, removed int
	originalsLeft                     int // by a deletion

	chatTokens, unanswered int
	unenriched             bool // the budget was spent before it
}

// progress is what the parts of a document tell each other.
type progress struct {
	mu       sync.Mutex
	failed   error
	existing map[hash]presence // rows that the vector store held before
	byText   map[hash]hash     // the same by the hash of their text
	listed   chan struct{}     // closed when existing is known
	written  sync.WaitGroup    // parts that are not written yet
	verified sync.WaitGroup    // parts that are not read back yet

	attempting
}

// attempting is how far the writing of the version is.
type attempting struct {
	attempt version.Attempt
	note    *openNote       // that names the attempt; nil for none
	begun   chan struct{}   // closed when note is set
	stamps  map[string]bool // of rows that the store held
	resumed string          // the stamp of an earlier run that continues in this one
	marks   []string        // commit marks that the store held, by id
	own     map[string]bool // its rows, by id; nil for a large document
	large   bool            // it has more rows than are read at once
	unread  []string        // rows of a large document that were not read back yet, by id
	foreign []string        // rows that another run has written meanwhile, by id

	mark      string // its own commit mark, by id; set with the last part
	markHeld  bool   // which the store held before
	givenUp   bool   // another run, or its source, has overtaken it
	gone      bool   // its source has it no longer
	discarded bool   // nothing is left of it
}

// openNote is a note of this run. Only the committer of the last part of its
// documents changes it once it is written.
type openNote struct {
	id        string
	documents []*document
	ended     int // of the documents
}

// presence says what a row is to a document that held it before.
type presence uint8

const (
	former    presence = iota // of the complete version before
	abandoned                 // of a version that is not complete, or has been replaced
	kept                      // of this version
)

// enrichment is how far the enrichment of a document is.
type enrichment struct {
	head   string // the beginning of its text; set before the first part is sent
	titled bool   // the document has a title of its own

	begun          chan struct{}    // closed when the group of the first part has its answers
	about          *enrich.Question // title and summary, nil for none; set by then
	title, summary string           // as the model gave them; set by then
	asPlain        bool             // the budget was spent before it got anything; set by then

	parts   sync.WaitGroup
	seeding chan struct{} // closed when the answers in its rows are in the journal; nil before
	paid    []hash        // rows that hold answers
	stored  *versions     // what the store holds of a document that the journal does not know
	unasked bool          // something is still to be asked
}

func newDocument(id, location string) *document {
	return &document{
		identity: identity{id: id, location: location},
		progress: progress{
			existing: map[hash]presence{}, byText: map[hash]hash{}, listed: make(chan struct{}),
			attempting: attempting{begun: make(chan struct{}), stamps: map[string]bool{}, own: map[string]bool{}},
		},
	}
}

// fail keeps the first failure of a document.
func (p *progress) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *progress) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// keep notes that a row is of this version, and so not stale, and reports
// whether it need not be written. A row of an abandoned version is written
// again, with the stamp of this one.
func (p *progress) keep(id hash) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, there := p.existing[id]
	if there {
		p.existing[id] = kept
	}
	return was == former && there || was == kept
}

// keepAll keeps every row of the version that the store held before.
func (p *progress) keepAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, was := range p.existing {
		if was != abandoned {
			p.existing[id] = kept
		}
	}
}

// countEmbedded counts a chunk whose text went to the model.
func (d *document) countEmbedded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.embedded++
}

// unrecord reports, once, whether the journal calls the document complete.
func (d *document) unrecord() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	recorded := d.recorded
	d.recorded = false
	return recorded
}

// stay leaves the document as the store holds it, where it does, and else makes
// it plain.
func (d *document) stay() {
	d.policy = d.plain
	if d.before == "" {
		return
	}
	d.adopted, d.policy = true, d.before
	d.keepAll()
}

// adopt leaves the document in the version of a commit mark, whose rows are
// given.
func (d *document) adopt(mark rows.Row, note enrich.Receipt, ids []hash) {
	if note.Plain != d.plain || d.adopted {
		return
	}
	d.adopted, d.policy, d.pending = true, mark.Policy, note.Pending
	for _, id := range ids {
		d.keep(id)
	}
}

// unfinished reports whether enrichment of what is stored is still to come.
func (d *document) unfinished() bool {
	if d.adopted {
		return d.pending
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.more != nil && d.more.unasked
}

// result is how a document came out that is complete.
func (d *document) result() Result {
	if d.adopted && d.before != "" {
		return Unchanged // since there was no budget for more
	}
	return Ingested
}

func (d *document) report(result Result) Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Document{
		ID: d.id, Result: result, Chunks: d.chunks, Tokens: d.tokens, Embedded: d.embedded, Removed: d.removed,
		OriginalsLeft: d.originalsLeft, ChatTokens: d.chatTokens, Unanswered: d.unanswered,
		Unenriched: d.unenriched || d.more != nil && d.more.unasked,
	}
}

// record is what the journal keeps of a document that is complete.
func (d *document) record(at time.Time) journal.Document {
	done := journal.Document{
		ID: d.id, SHA: d.sha, Policy: d.policy, Chunks: d.chunks, At: at,
		Location: d.location, Version: d.version, Parser: d.parser, Size: d.size,
	}
	if d.policy != d.plain {
		done.Plain, done.Pending = d.plain, d.unfinished()
	}
	return done
}

func failAll(documents []*document, err error) {
	if err == nil {
		return
	}
	for _, d := range documents {
		d.fail(err)
	}
}

// hash is a hash of pipeline/rows in half the memory: a document may have
// millions of rows.
type hash [sha256.Size]byte

// hashed reads a hash in hex. Other text gives the zero hash, which no row has.
func hashed(text string) (h hash) {
	if len(text) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(text)); err != nil {
			return hash{}
		}
	}
	return h
}

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// versions are what a store holds of a document: the rows by policy, and the
// commit marks of its content by policies that are not its own.
type versions struct {
	rows  map[string][]hash
	marks []rows.Row
}

func newVersions() *versions { return &versions{rows: map[string][]hash{}} }

func (v *versions) add(d *document, row rows.Row) {
	v.rows[row.Policy] = append(v.rows[row.Policy], hashed(row.ID))
	if row.IsMark() && row.SHA == d.sha && row.Policy != d.policy {
		v.marks = append(v.marks, row)
	}
}
