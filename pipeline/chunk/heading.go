package chunk

import "strings"

const pathSeparator = " > "

// section is an open heading.
type section struct {
	level int
	text  string
	shown bool // it is, or will be, in a chunk
}

// outline is where in the document we are.
type outline struct {
	cfg      Config
	title    string
	first    string // the first heading
	sections []section

	path   string // in force
	tokens int    // of path
	inPath int    // how many of the innermost sections path shows whole
}

func newOutline(cfg Config) *outline { return &outline{cfg: cfg} }

// setTitle takes the document's title.
func (o *outline) setTitle(title string) {
	if o.title == "" {
		o.title = oneLine(title)
		o.refresh()
	}
}

// open closes the sections that the new heading ends, and opens its own.
func (o *outline) open(level int, text string) {
	text = oneLine(text)
	if o.first == "" {
		o.first = text
	}
	o.sections = append(o.closing(level), section{level: level, text: text})
	o.refresh()
}

// closing is what is left of the sections when one of this level opens.
func (o *outline) closing(level int) []section {
	for i, s := range o.sections {
		if s.level >= level {
			return o.sections[:i]
		}
	}
	return o.sections
}

// unshown lists the headings of the sections from the given one inwards that
// no chunk shows.
func (o *outline) unshown(from int) []string {
	var texts []string
	for _, s := range o.sections[from:] {
		if !s.shown {
			texts = append(texts, s.text)
		}
	}
	return texts
}

// markShown records that a chunk with the present path was made.
func (o *outline) markShown() {
	for i := len(o.sections) - o.inPath; i < len(o.sections); i++ {
		o.sections[i].shown = true
	}
}

// documentTitle is what a chunk's Title says.
func (o *outline) documentTitle() string {
	if o.title != "" {
		return o.title
	}
	return o.first
}

// refresh makes the path: the innermost headings that fit a quarter of the
// budget, or the beginning of the innermost one.
func (o *outline) refresh() {
	parts := o.parts()
	o.inPath = len(o.sections)
	for len(parts) > 1 && !o.fits(strings.Join(parts, pathSeparator)) {
		parts = parts[1:]
		o.inPath = min(o.inPath, len(parts))
	}
	o.path = strings.Join(parts, pathSeparator)
	if !o.fits(o.path) {
		o.path, o.inPath = o.shorten(o.path), 0
	}
	o.tokens = o.cfg.Count(o.path)
}

// parts are the title, if there is no outermost heading, and the headings.
func (o *outline) parts() []string {
	var parts []string
	if o.title != "" && (len(o.sections) == 0 || o.sections[0].level > 1) {
		parts = append(parts, o.title)
	}
	for _, s := range o.sections {
		parts = append(parts, s.text)
	}
	return parts
}

func (o *outline) fits(path string) bool {
	return len(path) <= o.cfg.MaxBytes/4 && o.cfg.Count(path) <= o.cfg.Tokens/4
}

// shorten keeps as many words from the start of a heading as fit.
func (o *outline) shorten(path string) string {
	end, tokens := 0, 0
	for word := range byField(path) {
		tokens += o.cfg.Count(word)
		if tokens > o.cfg.Tokens/4 || end+len(word) > o.cfg.MaxBytes/4 {
			break
		}
		end += len(word)
	}
	short := strings.TrimSpace(path[:end])
	if !o.fits(short) {
		return ""
	}
	return short
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
