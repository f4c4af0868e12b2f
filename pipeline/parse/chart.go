package parse

import (
	"encoding/xml"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// drawings emits the charts and diagrams of a slide or document: they are parts
// of their own.
func (p *zipPackage) drawings(part string, page int, emit func(block.Block) error) error {
	related, err := p.relations(part)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(related)) {
		switch r := related[id]; r.kind {
		case "chart":
			err = p.chart(r.target, page, emit)
		case "diagramData":
			diagram := &slideWalker{emit: emit, page: page}
			err = p.walk(r.target, true, diagram.token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chart emits the titles of a chart, and what it shows as a table: a column a
// series, a row a category.
func (p *zipPackage) chart(part string, page int, emit func(block.Block) error) error {
	w := &chartWalker{}
	if err := p.walk(part, true, w.token); err != nil {
		return err
	}
	for _, title := range w.titles {
		if err := emit(block.Block{Kind: block.Paragraph, Text: title, Page: page}); err != nil {
			return err
		}
	}
	t := tableWriter{emit: emit, page: page}
	header := []string{""}
	for _, s := range w.series {
		header = append(header, s.name)
	}
	if t.header = tableLine(header); len(w.series) == 0 {
		return nil
	}
	for i := range w.points {
		row := []string{w.series[0].categories[i]}
		for _, s := range w.series {
			row = append(row, s.values[i])
		}
		if err := t.row(row); err != nil {
			return err
		}
	}
	return t.close()
}

// chartSeries is a row of values that a chart shows, by their place.
type chartSeries struct {
	name               string
	categories, values map[int]string
}

// maxPoints bounds what one chart says: more is data, and no picture of it.
const maxPoints = 10_000

// chartWalker gathers what a chart says.
type chartWalker struct {
	titles []string
	series []*chartSeries
	points int // the highest place of a value, and one

	text   strings.Builder
	inText bool
	in     *chartSeries // the series we are in
	part   string       // of it: "tx", "cat" or "val"
	place  int
}

func (w *chartWalker) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		w.start(t)
	case xml.EndElement:
		w.end(t.Name.Local)
	case xml.CharData:
		if w.inText {
			w.text.Write(t)
		}
	}
	return nil
}

func (w *chartWalker) start(e xml.StartElement) {
	switch e.Name.Local {
	case "ser":
		w.in = &chartSeries{categories: map[int]string{}, values: map[int]string{}}
		w.series = append(w.series, w.in)
	case "tx", "cat", "val":
		w.part, w.place = e.Name.Local, 0
	case "xVal":
		w.part, w.place = "cat", 0
	case "yVal":
		w.part, w.place = "val", 0
	case "pt":
		w.place, _ = strconv.Atoi(attr(e, "idx"))
	case "v", "t":
		w.inText = true
	}
}

func (w *chartWalker) end(name string) {
	switch name {
	case "v":
		w.point(w.take())
	case "t":
		w.inText = false
	case "p":
		w.title(w.take())
	case "ser":
		w.in = nil
	case "tx", "cat", "val", "xVal", "yVal":
		w.part = ""
	}
}

// take returns the text so far.
func (w *chartWalker) take() string {
	text := squeeze(w.text.String())
	w.text.Reset()
	w.inText = false
	return text
}

func (w *chartWalker) title(text string) {
	if text != "" {
		w.titles = append(w.titles, text)
	}
}

func (w *chartWalker) point(value string) {
	switch {
	case w.in == nil:
		w.title(value)
	case w.place < 0 || w.place >= maxPoints:
	case w.part == "tx":
		w.in.name = strings.TrimSpace(w.in.name + " " + value)
	case w.part == "cat":
		w.in.categories[w.place] = value
		w.points = max(w.points, w.place+1)
	case w.part == "val":
		w.in.values[w.place] = value
		w.points = max(w.points, w.place+1)
	}
}
