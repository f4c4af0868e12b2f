package parse_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// pdfOf is a PDF of objects, the first of which is its catalog.
func pdfOf(objects ...string) string {
	var b strings.Builder
	b.WriteString("%PDF-1.4\n")
	for i, object := range objects {
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	b.WriteString("trailer<</Size 99/Root 1 0 R>>\n%%EOF\n")
	return b.String()
}

// nestedPDF is a PDF of one page with forms that are nested so deep, each of
// which shows the next ten times.
func nestedPDF(depth int) string {
	objects := []string{
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</XObject<</F 5 0 R>>>>/Contents 4 0 R>>",
		"<</Length 6>>stream\n/F Do \nendstream",
	}
	show := strings.Repeat("/F Do ", 10)
	for i := range depth {
		objects = append(objects, fmt.Sprintf(
			"<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</XObject<</F %d 0 R>>>>/Length %d>>stream\n%s\nendstream",
			6+i, len(show), show))
	}
	return pdfOf(append(objects, "<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</Font<</H<</Type/Font"+
		"/Subtype/Type1/BaseFont/Helvetica>>>>>>/Length 22>>stream\nBT /H 12 Tf (hi) Tj ET\nendstream")...)
}

// deflatedPDF is a PDF of one page that unpacks to about so many bytes.
func deflatedPDF(t *testing.T, size int) string {
	t.Helper()
	const step = "1 0 0 1 0 0 cm q Q "
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, err := w.Write(bytes.Repeat([]byte(step), size/len(step)))
	require.NoError(t, err)
	_, err = w.Write([]byte("BT /H 12 Tf 72 700 Td (abc) Tj ET"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return pdfOf(
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</H<</Type/Font/Subtype/Type1"+
			"/BaseFont/Helvetica>>>>>>/Contents 4 0 R>>",
		fmt.Sprintf("<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream", packed.Len(), packed.String()),
	)
}

// A PDF of two kilobytes took nine gigabytes, and the process with it.
func TestPDFThatNeedsMuchMemoryIsTooLarge(t *testing.T) {
	for name, content := range map[string]string{
		"nested forms": nestedPDF(8), "a page that unpacks to 100 MB": deflatedPDF(t, 100<<20),
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t, parse.Limits{MaxMemory: 32 << 20})
			blocks, err := read(t, reg, "a.pdf", content)
			assert.Empty(t, blocks)
			assert.Equal(t, parse.TooLarge, kindOf(err))
			assert.ErrorContains(t, err, "(MaxMemory, --max-memory)")
			blocks, err = read(t, reg, "b.pdf", minimalPDF("The next is read."))
			require.NoError(t, err)
			assert.Len(t, blocks, 1)
		})
	}
}

func TestPDFHasItsSizeInMemoryBesides(t *testing.T) {
	before, after, _ := strings.Cut(minimalPDF("Hello"), "xref\n0 ")
	padding := strings.Repeat("% nothing to read\n", 64<<20/18)
	after = strings.Replace(after, fmt.Sprintf("startxref\n%d", len(before)),
		fmt.Sprintf("startxref\n%d", len(before)+len(padding)), 1)
	content := before + padding + "xref\n0 " + after
	blocks, err := read(t, newRegistry(t, parse.Limits{MaxMemory: 32 << 20}), "a.pdf", content)
	require.NoError(t, err)
	assert.Len(t, blocks, 1)
}
