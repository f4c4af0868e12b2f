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

// inKeys is In for a column of keys under the given field name.
func inKeys(field string, ids entity.Column) string {
	switch ids := ids.(type) {
	case *entity.ColumnVarChar:
		return In(field, ids.Data())
	case *entity.ColumnInt64:
		return In(field, ids.Data())
	default:
		return ""
	}
}

// awkward reports whether a key would end its own quotes in the SDK's
// expressions, which do not escape.
func awkward(ids entity.Column) bool {
	col, ok := ids.(*entity.ColumnVarChar)
	if !ok {
		return false
	}
	for _, id := range col.Data() {
		if q := Quote(id); q[1:len(q)-1] != id {
			return true
		}
	}
	return false
}
