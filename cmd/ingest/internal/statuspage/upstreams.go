package statuspage

import "strings"

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
	v := upstreamView{
		Name: name, Title: name, Where: clean(place.Where()), Model: clean(place.Models()), Embedded: place.Embedded,
	}
	words, known := titles[name]
	if !known {
		return v
	}
	v.Title = words.server
	if v.Embedded {
		v.Title, v.Where = words.embedded, c.inside(name)
	}
	return v
}

// inside says where an embedded upstream is.
func (c *Config) inside(name string) string {
	if name == "llm" {
		return "embedded in this program"
	}
	if c.Folder == "" {
		return "embedded"
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
