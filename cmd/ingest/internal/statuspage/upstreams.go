package statuspage

import (
	"strings"

	"github.com/penstock-go/penstock/pipeline/stop"
)

// embedded is the address of an upstream that is part of this program.
const embedded = "embedded"

// upstreamView says in words what an upstream is and where.
type upstreamView struct {
	Name     string // of its breaker, in metrics and logs
	Title    string // on its card
	Where    string // its address; empty if it is not known
	Model    string
	Embedded bool
}

// titles are those of a server and of what is embedded in its place.
var titles = map[string]struct{ server, embedded string }{
	"llm":    {"Model server", "Model"},
	"milvus": {"Vector store", "Vectors"},
	"s3":     {"Object store", "Originals"},
}

func (c *Config) upstream(name string) upstreamView {
	place := c.Places[name]
	v := upstreamView{Name: name, Title: name, Where: clean(place.Address), Model: clean(place.Model)}
	words, known := titles[name]
	if known {
		v.Title = words.server
	}
	if v.Embedded = isEmbedded(place); v.Embedded && known {
		v.Title = words.embedded
		v.Where = c.inside(name) + clean(strings.TrimPrefix(place.Address, embedded))
	}
	return v
}

func isEmbedded(place stop.Place) bool {
	first, _, _ := strings.Cut(place.Address, " ")
	return first == embedded
}

// inside says where an embedded upstream is.
func (c *Config) inside(name string) string {
	if name == "llm" {
		return "embedded in this program"
	}
	if c.Folder == "" {
		return embedded
	}
	return "embedded, in " + clean(c.Folder)
}

// Subject is the upstream as the subject of a sentence.
func (u upstreamView) Subject() string {
	words, known := titles[u.Name]
	switch {
	case !known:
		return u.Name
	case u.Embedded:
		return "The embedded " + map[string]string{
			"llm": "model", "milvus": "vector store", "s3": "object store",
		}[u.Name]
	}
	return "The " + strings.ToLower(words.server)
}
