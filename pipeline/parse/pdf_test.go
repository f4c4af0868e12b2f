package parse_test

import (
	"fmt"
	"strings"
)

// minimalPDF is a PDF with a page for each text; an empty text is an empty
// page.
func minimalPDF(texts ...string) string {
	var objects []string
	kids := make([]string, len(texts))
	for i, text := range texts {
		kids[i] = fmt.Sprintf("%d 0 R", 4+2*i)
		stream := ""
		if text != "" {
			stream = fmt.Sprintf("BT /F1 12 Tf 72 700 Td (%s) Tj ET", text)
		}
		objects = append(
			objects,
			fmt.Sprintf(
				"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R/Resources<</Font<</F1 3 0 R>>>>>>",
				5+2*i,
			),
			fmt.Sprintf("<</Length %d>>stream\n%s\nendstream", len(stream), stream),
		)
	}
	objects = append([]string{
		"<</Type/Catalog/Pages 2 0 R>>",
		fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]>>", len(texts), strings.Join(kids, " ")),
		"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
	}, objects...)
	var b strings.Builder
	b.WriteString("%PDF-1.4\n")
	offsets := make([]int, len(objects))
	for i, object := range objects {
		offsets[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, xref)
	return b.String()
}
