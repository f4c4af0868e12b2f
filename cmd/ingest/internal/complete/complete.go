// Package complete answers the completion scripts of shells: what may follow
// the words of a command line. The scripts are those of Cobra, which are tested
// in many shells, but for what they evaluated; they call the command with the
// words as its arguments.
package complete

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/spf13/cobra"
)

// Request is the first argument of a call by a script; RequestNames is the same
// for shells that show no descriptions.
const (
	Request      = cobra.ShellCompRequestCmd
	RequestNames = cobra.ShellCompNoDescRequestCmd
)

// Answer is what may stand in the place of the last word.
type Answer struct {
	Words []Word
	// Files asks the shell for names of files if none of the words fits, and
	// Folders for names of folders.
	Files, Folders bool
	// Open keeps the shell from adding a space, since the word may continue.
	Open bool
}

// Word is a word and what it means.
type Word struct{ Text, About string }

// Write writes the answer as the scripts read it. Without descriptions it names
// words only.
func (a Answer) Write(to io.Writer, described bool) error {
	var text strings.Builder
	for _, w := range a.Words {
		text.WriteString(w.Text)
		if described && w.About != "" {
			text.WriteString("\t" + w.About)
		}
		text.WriteString("\n")
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	switch {
	case a.Folders:
		directive = cobra.ShellCompDirectiveFilterDirs
	case a.Files:
		directive = cobra.ShellCompDirectiveDefault
	}
	if a.Open {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	_, err := fmt.Fprintf(to, "%s:%d\n", text.String(), directive)
	return err
}

// Arguments says what may stand as an argument of a verb, given its arguments
// so far and the beginning of the next.
type Arguments func(verb string, given []string, begun string) Answer

// line is the part of a command line before the word to complete.
type line struct {
	node  *kong.Node
	given []string // arguments of the node
	used  map[string]bool
	value *kong.Flag // whose value comes next
	ended bool       // by "--"
}

// For answers for the words of a command line, the last of which is begun and
// may be empty.
func For(app *kong.Application, words []string, arguments Arguments) Answer {
	if len(words) == 0 {
		words = []string{""}
	}
	begun := words[len(words)-1]
	l := line{node: app.Node, used: map[string]bool{}}
	for _, word := range words[:len(words)-1] {
		l.read(word)
	}
	name, value, assigned := strings.Cut(begun, "=")
	switch {
	case l.value != nil:
		return values(l.value, begun)
	case !l.ended && assigned && strings.HasPrefix(name, "-"):
		if flag := l.flag(name); flag != nil {
			return values(flag, value)
		}
		return Answer{}
	case !l.ended && strings.HasPrefix(begun, "-") && begun != "-":
		return l.flags(begun)
	case l.node == app.Node && len(l.given) == 0 && !l.ended:
		return beginning(app.Node, begun, arguments)
	}
	return arguments(l.verb(), l.given, begun)
}

// read takes in one word.
func (l *line) read(word string) {
	switch {
	case l.value != nil:
		l.value = nil
	case l.ended || !strings.HasPrefix(word, "-") || word == "-":
		l.argument(word)
	case word == "--":
		l.ended = true
	default:
		name, _, assigned := strings.Cut(word, "=")
		flag := l.flag(name)
		if flag == nil {
			return
		}
		l.used[flag.Name] = true
		if !assigned && !flag.IsBool() {
			l.value = flag
		}
	}
}

func (l *line) argument(word string) {
	if l.node.Type == kong.ApplicationNode && len(l.given) == 0 && !l.ended {
		for _, verb := range l.node.Children {
			if verb.Name == word {
				l.node = verb
				return
			}
		}
	}
	l.given = append(l.given, word)
}

func (l *line) verb() string {
	if l.node.Type == kong.ApplicationNode && l.node.DefaultCmd != nil {
		return l.node.DefaultCmd.Name
	}
	return l.node.Name
}

// all are the flags that may come next, those of the verb first.
func (l *line) all() []*kong.Flag {
	flags := slices.Clone(l.node.Flags)
	switch {
	case l.node.Parent != nil:
		flags = append(flags, l.node.Parent.Flags...)
	case l.node.DefaultCmd != nil:
		flags = append(flags, l.node.DefaultCmd.Flags...)
	}
	return slices.DeleteFunc(flags, func(f *kong.Flag) bool { return f.Hidden })
}

func (l *line) flag(name string) *kong.Flag {
	for _, flag := range l.all() {
		if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) {
			return flag
		}
	}
	return nil
}

// flags are those that begin so. One that is given already is left out, unless
// it may be given again.
func (l *line) flags(begun string) Answer {
	var a Answer
	for _, flag := range l.all() {
		again := flag.IsCumulative()
		if text := "--" + flag.Name; strings.HasPrefix(text, begun) && (again || !l.used[flag.Name]) {
			a.Words = append(a.Words, Word{text, firstSentence(flag.Help)})
		}
	}
	return a
}

// values are those of a flag that begin so.
func values(flag *kong.Flag, begun string) Answer {
	var names []string
	switch {
	case flag.Enum != "":
		names = strings.Split(flag.Enum, ",")
	case flag.IsBool():
		names = []string{"true", "false"}
	case flag.Tag.Get("values") != "":
		return listed(strings.Split(flag.Tag.Get("values"), ","), begun)
	}
	a := Answer{Files: flag.PlaceHolder == "FILE", Folders: flag.PlaceHolder == "DIR"}
	for _, name := range names {
		a.Words = append(a.Words, Word{Text: name})
	}
	return a.beginning(begun)
}

// listed are the values of a list with commas, each of which may occur once.
func listed(names []string, begun string) Answer {
	before, last := "", begun
	if at := strings.LastIndex(begun, ","); at >= 0 {
		before, last = begun[:at+1], begun[at+1:]
	}
	given := strings.Split(before, ",")
	a := Answer{Open: true}
	for _, name := range names {
		if strings.HasPrefix(name, last) && !slices.Contains(given, name) {
			a.Words = append(a.Words, Word{Text: before + name})
		}
	}
	return a
}

// beginning are the verbs and the arguments of the default verb. Shells look
// for files only where no word fits, so files are among the words.
func beginning(root *kong.Node, begun string, arguments Arguments) Answer {
	a := Answer{Files: true}
	for _, verb := range root.Children {
		if !verb.Hidden {
			a.Words = append(a.Words, Word{verb.Name, firstSentence(verb.Help)})
		}
	}
	if a = a.beginning(begun); len(a.Words) == 0 || root.DefaultCmd == nil || begun == "" {
		return a
	}
	if !arguments(root.DefaultCmd.Name, nil, begun).Files {
		return a
	}
	a.Words = append(a.Words, files(begun)...)
	a.Open = slices.ContainsFunc(a.Words, func(w Word) bool { return strings.HasSuffix(w.Text, separator) })
	return a
}

// separator ends the name of a folder.
const separator = string(filepath.Separator)

// files are the names in the working folder that begin so.
func files(begun string) []Word {
	entries, err := os.ReadDir(".")
	if err != nil {
		return nil
	}
	var words []Word
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, begun) || strings.ContainsAny(name, "\t\n") {
			continue
		}
		if entry.IsDir() {
			name += separator
		}
		words = append(words, Word{Text: name})
	}
	return words
}

// Of is an answer of the words that begin so.
func Of(begun string, words ...string) Answer {
	var a Answer
	for _, w := range words {
		a.Words = append(a.Words, Word{Text: w})
	}
	return a.beginning(begun)
}

// beginning keeps the words that begin so.
func (a Answer) beginning(begun string) Answer {
	a.Words = slices.DeleteFunc(a.Words, func(w Word) bool { return !strings.HasPrefix(w.Text, begun) })
	return a
}

// firstSentence is what fits beside a word.
func firstSentence(help string) string {
	first, _, cut := strings.Cut(help, ". ")
	if cut {
		return first + "."
	}
	return first
}
