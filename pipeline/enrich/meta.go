package enrich

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Keys of the metadata that enrichment fills.
const (
	keyTitle   = "title"
	keySummary = "summary"
	keyContext = "context"
	keyReceipt = "enrichment"
)

// OwnsKey reports whether a field of metadata belongs to enrichment alone. The
// title is not one: a document may have its own.
func OwnsKey(key string) bool { return key == keySummary || key == keyContext || key == keyReceipt }

// Receipt is what a row says of its own enrichment: under which keys the
// answers were asked for, so that they are found again without what was kept.
// The commit mark also says how the document stands.
type Receipt struct {
	Document string `json:"document,omitempty"` // of title and summary, on the first row
	Context  string `json:"context,omitempty"`
	Plain    string `json:"plain,omitempty"` // the policy without enrichment
	Pending  bool   `json:"pending,omitempty"`
}

// Meta is the part of a row's metadata that enrichment fills.
type Meta struct {
	Title, Summary, Context string
	Enrichment              Receipt
}

// ReadMeta reads what it can: fields of the user's own may have these names and
// other types.
func ReadMeta(encoded json.RawMessage) (meta Meta) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(encoded, &fields) != nil {
		return meta
	}
	for key, field := range map[string]any{
		keyTitle: &meta.Title, keySummary: &meta.Summary, keyContext: &meta.Context, keyReceipt: &meta.Enrichment,
	} {
		if len(fields[key]) > 0 {
			_ = json.Unmarshal(fields[key], field)
		}
	}
	return meta
}

// AddTo returns the metadata with the texts that are not empty, and the
// receipt.
func (m Meta) AddTo(encoded json.RawMessage) (json.RawMessage, error) {
	fields, err := readFields(encoded)
	if err != nil {
		return nil, err
	}
	for key, text := range map[string]string{keyTitle: m.Title, keySummary: m.Summary, keyContext: m.Context} {
		if text != "" {
			fields[key] = text
		}
	}
	if m.Enrichment != (Receipt{}) {
		fields[keyReceipt] = m.Enrichment
	}
	return json.Marshal(fields)
}

// Answers gives the answers that the metadata holds, by the keys they were
// asked for under.
func (m Meta) Answers() map[string]string {
	answers := map[string]string{}
	if key := m.Enrichment.Document; key != "" {
		answers[key] = description{Title: m.Title, Summary: m.Summary}.encode()
	}
	if key := m.Enrichment.Context; key != "" {
		answers[key] = m.Context
	}
	return answers
}

// WithoutContext returns the metadata without the context. The receipt stays:
// it is what was asked for.
func WithoutContext(encoded json.RawMessage) (json.RawMessage, error) {
	fields, err := readFields(encoded)
	if err != nil {
		return nil, err
	}
	delete(fields, keyContext)
	return json.Marshal(fields)
}

func readFields(encoded json.RawMessage) (map[string]any, error) {
	fields := map[string]any{}
	read := json.NewDecoder(bytes.NewReader(encoded))
	read.UseNumber()
	if err := read.Decode(&fields); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return fields, nil
}
