package vectorstore

import (
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// Quote makes a string literal of a filter expression, whatever s holds.
func Quote(s string) string { return strconv.Quote(s) }

// In makes the filter expression `field in [v, …]` with every value quoted as
// its type needs. No value can end the list or add a condition.
func In[T string | int64](field string, values []T) string {
	var b strings.Builder
	b.WriteString(field)
	b.WriteString(" in [")
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		switch v := any(v).(type) {
		case string:
			b.WriteString(Quote(v))
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		}
	}
	b.WriteByte(']')
	return b.String()
}

// textKeys are the keys of a column of texts, of whatever kind, or nil.
func textKeys(ids entity.Column) []string {
	if ids.Type() != entity.FieldTypeVarChar {
		return nil
	}
	return ids.FieldData().GetScalars().GetStringData().GetData()
}

// awkward reports whether a key would end its own quotes in the SDK's
// expressions, which do not escape.
func awkward(keys []string) bool {
	for _, id := range keys {
		if q := Quote(id); q[1:len(q)-1] != id {
			return true
		}
	}
	return false
}
