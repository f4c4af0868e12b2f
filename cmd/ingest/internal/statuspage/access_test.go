package statuspage

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/journal"
)

// element is a node of a page with its attributes.
type element struct {
	name  string
	attrs map[string]string
	text  string // of script elements
}

func elements(t *testing.T, page string) (all []element) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		e := element{name: n.Data, attrs: map[string]string{}}
		if n.Namespace != "" {
			e.name = n.Namespace + ":" + n.Data
		}
		for _, a := range n.Attr {
			e.attrs[a.Key] = a.Val
		}
		if n.FirstChild != nil && n.Data == "script" {
			e.text = n.FirstChild.Data
		}
		all = append(all, e)
	}
	return all
}

// pages are all pages, with something in each list.
func pages(t *testing.T) map[string]string {
	f := newFixture(t, func(c *Config) { c.Token = testToken })
	f.journal.problems = append(problems(journal.DeadLetter, 30, "a/"), problems(journal.Deferred, 130, "b/")...)
	f.searcher.hits = []pipeline.Hit{{Source: "a", Text: strings.Repeat("long ", 500)}}
	f.llm.Trip("drill")
	fail(f.s3, "away")
	bearer := with("Authorization", "Bearer "+testToken)
	all := map[string]string{}
	for _, path := range []string{
		"/", "/search", "/search?q=x", "/problems", "/problems?status=deferred", "/changes", "/login",
	} {
		all[path] = f.get(path, bearer).Body.String()
	}
	return all
}

func TestPagesAreAccessible(t *testing.T) {
	for path, page := range pages(t) {
		labels, ids, count := map[string]bool{}, map[string]int{}, map[string]int{}
		list := elements(t, page)
		for _, e := range list {
			count[e.name]++
			if id := e.attrs["id"]; id != "" {
				ids[id]++
			}
			if e.name == "label" {
				labels[e.attrs["for"]] = true
			}
		}
		for _, e := range list {
			switch e.name {
			case "html":
				assert.Equal(t, "en", e.attrs["lang"], path)
			case "input":
				assert.True(t, labels[e.attrs["id"]], "%s: input %q has no label", path, e.attrs["id"])
			case "img":
				_, ok := e.attrs["alt"]
				assert.True(t, ok, path)
			case "svg:svg":
				assert.Equal(t, "img", e.attrs["role"], path)
				assert.NotEmpty(t, e.attrs["aria-label"], "%s: a drawing has no text", path)
			case "section":
				named := e.attrs["aria-label"] != "" || ids[e.attrs["aria-labelledby"]] == 1
				assert.True(t, named, "%s: a section has no name", path)
			}
			if _, after := e.attrs["tabindex"]; after {
				assert.Fail(t, "the order of the page is the order of the keyboard", path)
			}
		}
		for id, n := range ids {
			assert.Equal(t, 1, n, "%s: id %s", path, id)
		}
		for _, name := range []string{"h1", "main", "title"} {
			assert.Equal(t, 1, count[name], "%s: %s", path, name)
		}
		assert.Equal(t, 1, ids["main"], "%s: the skip link leads nowhere", path)
	}
	assert.Contains(t, pages(t)["/"], `role="status" aria-live="polite"`)
}

// The content security policy would break a page with something inline, and
// nothing may be loaded from elsewhere.
func TestPagesBringNothingInlineOrForeign(t *testing.T) {
	for path, page := range pages(t) {
		for _, e := range elements(t, page) {
			assert.NotEqual(t, "style", e.name, path)
			assert.Empty(t, strings.TrimSpace(e.text), "%s: an inline script", path)
			for name, value := range e.attrs {
				assert.False(t, name == "style" || strings.HasPrefix(name, "on"), "%s: attribute %s", path, name)
				if name == "src" || name == "href" || name == "action" {
					assert.Regexp(t, `^(/[^/]|/$|#)`, value, "%s: %s", path, name)
				}
			}
		}
	}
	for _, name := range []string{"style.css", "app.js"} {
		text, err := staticFiles.ReadFile("static/" + name)
		require.NoError(t, err)

		assert.NotRegexp(t, `https?://|@import|url\(`, string(text), name)
	}
}

var colour = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)

// luminance after WCAG 2.
func luminance(hex string) float64 {
	part := func(i int) float64 {
		n, _ := strconv.ParseUint(hex[i:i+2], 16, 8)
		c := float64(n) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(0) + 0.7152*part(2) + 0.0722*part(4)
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (math.Max(x, y) + 0.05) / (math.Min(x, y) + 0.05)
}

func TestColoursHaveContrast(t *testing.T) {
	style, err := staticFiles.ReadFile("static/style.css")
	require.NoError(t, err)
	light, rest, ok := strings.Cut(string(style), "@media (prefers-color-scheme: dark)")
	require.True(t, ok)
	assert.InDelta(t, 21, contrast("000000", "ffffff"), 0.01)
	for scheme, text := range map[string]string{"light": light, "dark": rest} {
		c := map[string]string{}
		for _, m := range colour.FindAllStringSubmatch(text, -1) {
			c[m[1]] = m[2]
		}
		for _, pair := range []struct {
			on, colours string
			least       float64
		}{
			{"back", "text dim link good wait bad", 4.5},
			{"wait-back", "text dim link wait", 4.5},
			{"back", "good wait bad held", 3}, // blocks of a strip
			{"card", "bar wait bad", 3},       // bars of the chart
			{"card", "text dim link good wait bad", 4.5},
			{"bad-back", "text dim link bad", 4.5},
			{"link", "card", 4.5}, // the label of a button
			{"card", "field", 3},  // the border of a field
		} {
			for name := range strings.FieldsSeq(pair.colours) {
				require.NotEmpty(t, c[name], name)
				assert.GreaterOrEqual(t, contrast(c[name], c[pair.on]), pair.least,
					fmt.Sprintf("%s: %s on %s", scheme, name, pair.on))
			}
		}
	}
}
