package parse

import (
	"strings"

	"github.com/klippa-app/go-pdfium"
	"github.com/klippa-app/go-pdfium/enums"
	"github.com/klippa-app/go-pdfium/requests"
)

// pdfField is a field of a form that somebody has filled in.
type pdfField struct{ name, value string }

// openPDFForm makes what lies on a page (the values of its form, stamps, text
// boxes) a part of it, and returns what is filled in: a value that was filled
// in by a program may have no look yet. A page on which that fails is read
// without.
func openPDFForm(engine pdfium.Pdfium, page requests.Page) []pdfField {
	lying, err := engine.FPDFPage_GetAnnotCount(&requests.FPDFPage_GetAnnotCount{Page: page})
	if err != nil || lying.Count == 0 {
		return nil
	}
	var fields []pdfField
	for i := range min(lying.Count, maxPDFFields) {
		if field, ok := readPDFField(engine, page, i); ok {
			fields = append(fields, field)
		}
	}
	_, _ = engine.FPDFPage_Flatten(&requests.FPDFPage_Flatten{Page: page})
	return fields
}

const maxPDFFields = 2000 // on a page

func readPDFField(engine pdfium.Pdfium, page requests.Page, index int) (pdfField, bool) {
	opened, err := engine.FPDFPage_GetAnnot(&requests.FPDFPage_GetAnnot{Page: page, Index: index})
	if err != nil {
		return pdfField{}, false
	}
	lying := opened.Annotation
	defer func() { _, _ = engine.FPDFPage_CloseAnnot(&requests.FPDFPage_CloseAnnot{Annotation: lying}) }()
	subtype, err := engine.FPDFAnnot_GetSubtype(&requests.FPDFAnnot_GetSubtype{Annotation: lying})
	if err != nil || subtype.Subtype != enums.FPDF_ANNOT_SUBTYPE_WIDGET {
		return pdfField{}, false
	}
	text := func(key string) string {
		kind, err := engine.FPDFAnnot_GetValueType(&requests.FPDFAnnot_GetValueType{Annotation: lying, Key: key})
		if err != nil || kind.ValueType != enums.FPDF_OBJECT_TYPE_STRING { // a name is the state of a button
			return ""
		}
		value, err := engine.FPDFAnnot_GetStringValue(&requests.FPDFAnnot_GetStringValue{Annotation: lying, Key: key})
		if err != nil {
			return ""
		}
		return squeeze(clean(value.Value))
	}
	field := pdfField{name: text("T"), value: text("V")}
	return field, field.value != ""
}

// withPDFFields adds the values that a page does not show.
func withPDFFields(page string, fields []pdfField) string {
	shown := squeeze(clean(page))
	var all strings.Builder
	all.WriteString(page)
	for _, field := range fields {
		if strings.Contains(shown, field.value) {
			continue
		}
		all.WriteString("\n" + strings.TrimPrefix(field.name+": "+field.value, ": "))
	}
	return all.String()
}
