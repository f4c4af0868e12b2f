package main

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// nearest returns the one of several names that a mistyped word most likely
// stands for, or "". Case does not count. A word of at least four letters with
// which a name begins is near too.
func nearest(word string, names []string) string {
	const shortest, tolerated = 4, 2
	word = strings.ToLower(word)
	best, least := "", tolerated+1
	for _, name := range names {
		distance := levenshtein.ComputeDistance(word, name)
		if len(word) < shortest && distance > 1 {
			continue
		}
		if len(word) >= shortest && strings.HasPrefix(name, word) {
			distance = 0
		}
		if distance < least {
			best, least = name, distance
		}
	}
	return best
}
