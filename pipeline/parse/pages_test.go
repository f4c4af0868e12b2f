package parse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/block"
)

// manyPages is a PDF of so many pages, each with its number and more lines.
func manyPages(pages, lines int) []byte {
	var b bytes.Buffer
	var offsets []int
	object := func(format string, args ...any) {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n"+format+"\nendobj\n", append([]any{len(offsets)}, args...)...)
	}
	b.WriteString("%PDF-1.4\n")
	object("<</Type/Catalog/Pages 2 0 R>>")
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object("<</Type/Pages/Count %d/Kids[%s]>>", pages, kids.String())
	object("<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
	for i := range pages {
		object("<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R/Resources<</Font<</F1 3 0 R>>>>>>", 5+2*i)
		var text strings.Builder
		for line := range lines {
			fmt.Fprintf(&text, "(Page %d, line %d: the pump was opened, and the valve was closed again.) Tj T*\n", i+1, line+1)
		}
		stream := "BT /F1 10 Tf 14 TL 72 740 Td\n" + text.String() + "ET"
		object("<</Length %d>>stream\n%s\nendstream", len(stream), stream)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(offsets)+1)
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(offsets)+1, xref)
	return b.Bytes()
}

// A page is progress, one without text too: a document of 2,000 pages passes on
// a machine of any load.
func TestPagesAreProgress(t *testing.T) {
	for name, lines := range map[string]int{"with text": 3, "without text": 0} {
		t.Run(name, func(t *testing.T) {
			reg := New(Limits{})
			defer func() { assert.NoError(t, reg.Close()) }()
			in := FromBytes("a.pdf", manyPages(200, lines))
			in.budget = newBudget(reg.limits, in.Size)
			before, pages := in.budget.work.done.Load(), 0
			err := reg.pdf.parse(t.Context(), in, func(b block.Block) error {
				if now := in.budget.work.done.Load(); b.Page > pages {
					assert.Greater(t, now, before, "page %d", b.Page)
					before, pages = now, b.Page
				}
				return nil
			})
			assert.GreaterOrEqual(t, in.budget.work.done.Load(), int64(200*unitsOfStep))
			if lines > 0 {
				require.NoError(t, err)
				assert.Equal(t, 200, pages)
			}
		})
	}
}

// 2,000 pages took 15 seconds of processor time, and on a busy machine more
// than the minute that a document had.
func TestTwoThousandPagesPass(t *testing.T) {
	reg := New(Limits{})
	defer func() { assert.NoError(t, reg.Close()) }()
	last := block.Block{}
	for b, err := range reg.Blocks(t.Context(), FromBytes("a.pdf", manyPages(2000, 40))) {
		require.NoError(t, err)
		last = b
	}
	assert.Equal(t, 2000, last.Page)
	assert.Contains(t, last.Text, "Page 2000, line 40:")
}
