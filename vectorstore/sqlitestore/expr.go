package sqlitestore

import (
	"encoding/json"
	"strconv"
	"strings"
	"text/scanner"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"

	"github.com/penstock-go/penstock/internal/plain"
)

// where turns a filter expression into a SQL condition over the rows table
// and its parameters. Values are bound, columns are named by position: no text
// of the caller's becomes a part of a statement.
func (c *collection) where(expr string) (string, []any, error) {
	if strings.TrimSpace(expr) == "" {
		return "1", nil, nil
	}
	p := &parser{c: c, text: expr}
	p.lex.Init(strings.NewReader(expr))
	p.lex.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings
	p.lex.Error = func(*scanner.Scanner, string) { p.broken = true }
	p.next()
	if err := p.conjunction(); err != nil {
		return "", nil, err
	}
	if p.tok != scanner.EOF || p.broken {
		return "", nil, p.refuse()
	}
	return p.sql.String(), p.args, nil
}

// parser is a recursive descent over the tokens of an expression.
type parser struct {
	c      *collection
	text   string
	lex    scanner.Scanner
	tok    rune
	broken bool // an unfinished string or a bad escape
	depth  int

	sql  strings.Builder
	args []any
}

const maxDepth = 50

func (p *parser) next() { p.tok = p.lex.Scan() }

func (p *parser) refuse() error {
	at := p.lex.Position.Offset
	return invalid("filter %q is not understood at offset %d; it may use ==, !=, in, not in, and", p.shown(), at)
}

// shown is how much of a filter an error repeats.
func (p *parser) shown() string { return plain.Shorten(p.text, 200) }

// keyword reports whether the token is the word, in lower or upper case.
func (p *parser) keyword(word string) bool {
	return p.tok == scanner.Ident && (p.lex.TokenText() == word || p.lex.TokenText() == strings.ToUpper(word))
}

// symbol takes the given characters if they come next without a gap.
func (p *parser) symbol(s string) bool {
	if p.tok != rune(s[0]) {
		return false
	}
	for _, r := range s[1:] {
		if p.lex.Peek() != r {
			return false
		}
		p.next()
	}
	p.next()
	return true
}

func (p *parser) conjunction() error {
	for {
		if err := p.term(); err != nil {
			return err
		}
		switch {
		case p.keyword("and"):
			p.next()
		case p.symbol("&&"):
		default:
			return nil
		}
		p.sql.WriteString(" AND ")
	}
}

func (p *parser) term() error {
	if !p.symbol("(") {
		return p.comparison()
	}
	if p.depth++; p.depth > maxDepth {
		return p.refuse()
	}
	p.sql.WriteString("(")
	if err := p.conjunction(); err != nil {
		return err
	}
	p.depth--
	p.sql.WriteString(")")
	if !p.symbol(")") {
		return p.refuse()
	}
	return nil
}

func (p *parser) comparison() error {
	if p.tok != scanner.Ident {
		return p.refuse()
	}
	name := p.lex.TokenText()
	i, ok := p.c.field(name)
	if !ok {
		return invalid("filter %q: collection %q has no field %q", p.shown(), p.c.schema.CollectionName, name)
	}
	p.next()
	switch p.c.schema.Fields[i].DataType {
	case entity.FieldTypeJSON:
		return p.jsonComparison(i)
	case entity.FieldTypeFloatVector:
		return invalid("filter %q: field %q is a vector", p.shown(), name)
	default:
		return p.fieldComparison(i)
	}
}

func (p *parser) fieldComparison(i int) error {
	col := p.c.column(i)
	switch {
	case p.symbol("=="):
		return p.operand(i, col+" = ?")
	case p.symbol("!="):
		return p.operand(i, col+" <> ?")
	case i == p.c.pk && p.symbol(">"):
		return p.operand(i, col+" > ?")
	case p.keyword("in"):
		p.next()
		return p.list(i, col+" IN ")
	case p.keyword("not"):
		p.next()
		if !p.keyword("in") {
			return p.refuse()
		}
		p.next()
		return p.list(i, col+" NOT IN ")
	default:
		return p.refuse()
	}
}

func (p *parser) operand(i int, sql string) error {
	v, err := p.literal()
	if err != nil {
		return err
	}
	if v, err = p.fit(i, v); err != nil {
		return err
	}
	p.sql.WriteString(sql)
	p.args = append(p.args, v)
	return nil
}

// list binds the whole list as one JSON parameter, which avoids SQLite's limit
// on parameters.
func (p *parser) list(i int, sql string) error {
	if !p.symbol("[") {
		return p.refuse()
	}
	items := []any{}
	for !p.symbol("]") {
		v, err := p.literal()
		if err != nil {
			return err
		}
		if v, err = p.fit(i, v); err != nil {
			return err
		}
		items = append(items, v)
		if !p.symbol(",") && p.tok != ']' {
			return p.refuse()
		}
	}
	text, err := json.Marshal(items)
	if err != nil {
		return err
	}
	p.sql.WriteString(sql + "(SELECT value FROM json_each(?))")
	p.args = append(p.args, string(text))
	return nil
}

// jsonComparison compares one key of a JSON field. A missing key is equal to
// nothing. Booleans are compared as JSON, since SQL has none.
func (p *parser) jsonComparison(i int) error {
	if !p.symbol("[") || p.tok != scanner.String {
		return p.refuse()
	}
	key, err := strconv.Unquote(p.lex.TokenText())
	if err != nil || strings.ContainsAny(key, "\"\\") {
		return p.refuse()
	}
	p.next()
	if !p.symbol("]") {
		return p.refuse()
	}
	op := " IS ?"
	if !p.symbol("==") {
		if op = " IS NOT ?"; !p.symbol("!=") {
			return p.refuse()
		}
	}
	v, err := p.literal()
	if err != nil {
		return err
	}
	get := " ->> ?"
	if b, ok := v.(bool); ok {
		get, v = " -> ?", strconv.FormatBool(b)
	}
	p.sql.WriteString(p.c.column(i) + get + op)
	p.args = append(p.args, `$."`+key+`"`, v)
	return nil
}

func (p *parser) literal() (any, error) {
	negative := p.symbol("-")
	text := p.lex.TokenText()
	if negative {
		text = "-" + text
	}
	var (
		v   any
		err error
	)
	switch {
	case p.tok == scanner.Int:
		v, err = strconv.ParseInt(text, 10, 64)
	case p.tok == scanner.Float:
		v, err = strconv.ParseFloat(text, 64)
	case p.tok == scanner.String && !negative:
		v, err = strconv.Unquote(text)
	case p.keyword("true") && !negative:
		v = true
	case p.keyword("false") && !negative:
		v = false
	default:
		return nil, p.refuse()
	}
	if err != nil || p.broken {
		return nil, p.refuse()
	}
	p.next()
	return v, nil
}

// fit checks that a literal is of the field's kind.
func (p *parser) fit(i int, v any) (any, error) {
	f := p.c.schema.Fields[i]
	var ok bool
	switch f.DataType {
	case entity.FieldTypeVarChar:
		_, ok = v.(string)
	case entity.FieldTypeBool:
		_, ok = v.(bool)
	case entity.FieldTypeFloat, entity.FieldTypeDouble:
		if n, whole := v.(int64); whole {
			v = float64(n)
		}
		_, ok = v.(float64)
	default:
		_, ok = v.(int64)
	}
	if !ok {
		return nil, invalid("filter %q: field %q is %s, the value is not", p.shown(), f.Name, f.DataType.Name())
	}
	return v, nil
}
