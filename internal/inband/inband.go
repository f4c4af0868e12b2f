// Package inband reads what a server says of an error inside an answer of
// status 200.
package inband

import "slices"

// Empty reports whether a value of encoding/json has no word in it: null,
// false, 0, "", and what holds nothing else. Some servers send such an error
// with every answer.
func Empty(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !Empty(e) })
	case map[string]any:
		for _, e := range v {
			if !Empty(e) {
				return false
			}
		}
		return true
	}
	return v == nil || v == false || v == "" || v == 0.0
}
