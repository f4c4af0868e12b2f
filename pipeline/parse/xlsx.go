package parse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/xuri/excelize/v2"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseXLSX reads the sheets of an Excel workbook as they are shown, numbers
// and dates formatted. A first row of words is the header.
func parseXLSX(ctx context.Context, in Input, emit func(block.Block) error) error {
	p, err := openPackage(in)
	if err != nil {
		return err
	}
	total, err := p.claim()
	if err != nil {
		return err
	}
	book, err := excelize.OpenReader(io.NewSectionReader(in.Content, 0, in.Size), excelize.Options{
		UnzipSizeLimit: total + 1, UnzipXMLSizeLimit: total + 1, // all of it in memory, nothing in files
	})
	if err != nil {
		return xlsxRefusal(err)
	}
	defer book.Close()
	for _, sheet := range book.GetSheetList() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := readSheet(book, sheet, in.budget, emit); err != nil {
			return err
		}
	}
	return nil
}

// claim takes all members of a package from the budget at once, for a reader
// that unpacks them by itself, and returns their size. They say how large they
// are, and a zip reader gives no more of a member than that. A package that is
// held in memory as a whole may take packageFactor times the room of a member.
func (p *zipPackage) claim() (total int64, err error) {
	for _, f := range p.order {
		size := int64(min(f.UncompressedSize64, math.MaxInt64/2))
		if err := p.budget.spend(size, size, int64(f.CompressedSize64)); err != nil {
			return 0, err
		}
		if total += size; total > packageFactor*p.budget.limits.MaxSize {
			return 0, refuse(TooLarge, fmt.Errorf("the parts of a workbook unpack to more than %d bytes (%d × MaxSize, --max-size)",
				packageFactor*p.budget.limits.MaxSize, packageFactor))
		}
	}
	return total, nil
}

// packageFactor is how many times MaxSize the parts of a workbook may unpack
// to: its cells are markup, and most of that is not text.
const packageFactor = 3

func xlsxRefusal(err error) error {
	switch {
	case errors.Is(err, excelize.ErrWorkbookPassword):
		return refuse(passwordProtected, err)
	}
	return err
}

// plainSheet is a name that says nothing.
var plainSheet = regexp.MustCompile(`^(Sheet|Tabelle|Feuil|Hoja|Foglio|Лист|工作表)\s?\d*$`)

func readSheet(book *excelize.File, sheet string, b *budget, emit func(block.Block) error) error {
	rows, err := book.Rows(sheet)
	if err != nil {
		return nil // a chart has no rows
	}
	defer rows.Close()
	t := tableWriter{emit: emit, section: sheet}
	if !plainSheet.MatchString(sheet) {
		named := t.emit
		t.emit = func(b block.Block) error {
			t.emit = named
			if err := named(block.Block{Kind: block.Heading, Level: 1, Text: sheet, Section: sheet}); err != nil {
				return err
			}
			return named(b)
		}
	}
	for rows.Next() {
		cells, err := rows.Columns()
		if err == nil {
			err = b.work.spend(1 + int64(len(cells))) // no step: a sheet may be a million empty rows
		}
		if err != nil {
			return err
		}
		if t.header == "" && t.first == 0 && len(t.rows) == 0 && isHeaderRow(cells) {
			t.header = tableLine(cells)
			continue
		}
		if err := t.row(cells); err != nil {
			return err
		}
	}
	return errors.Join(rows.Error(), t.close())
}

// isHeaderRow holds for two or more cells of words.
func isHeaderRow(cells []string) bool {
	named := 0
	for _, cell := range cells {
		cell = strings.TrimSpace(cell)
		if _, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64); err == nil {
			return false
		}
		if cell != "" {
			named++
		}
	}
	return named > 1
}
