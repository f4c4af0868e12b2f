package parse

import (
	"context"
	"errors"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// stanzaBytes is the size above which a block of code ends at the next blank
// line that is not inside an indented part.
const stanzaBytes = 1 << 10

// codeLanguages maps extensions to the names that fences use.
var codeLanguages = map[string]string{
	".go": "go", ".py": "python", ".pyi": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
	".jsx": "jsx", ".ts": "typescript", ".tsx": "tsx", ".java": "java", ".kt": "kotlin",
	".kts": "kotlin", ".scala": "scala",
	".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hpp": "cpp", ".hh": "cpp",
	".cs": "csharp", ".fs": "fsharp",
	".rs": "rust", ".rb": "ruby", ".php": "php", ".pl": "perl", ".pm": "perl", ".lua": "lua", ".r": "r", ".jl": "julia",
	".swift": "swift", ".m": "objectivec", ".mm": "objectivec", ".dart": "dart", ".ex": "elixir", ".exs": "elixir",
	".erl": "erlang", ".hs": "haskell", ".ml": "ocaml", ".clj": "clojure", ".el": "elisp",
	".lisp": "lisp", ".scm": "scheme",
	".sh": "bash", ".bash": "bash", ".zsh": "zsh", ".fish": "fish", ".ps1": "powershell",
	".bat": "batch", ".sql": "sql",
	".css": "css", ".scss": "scss", ".less": "less", ".vue": "vue", ".svelte": "svelte",
	".proto": "protobuf", ".graphql": "graphql",
	".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".ini": "ini", ".cfg": "ini", ".conf": "ini",
	".properties": "properties",
	".tf":         "hcl", ".hcl": "hcl", ".nix": "nix", ".zig": "zig", ".nim": "nim", ".v": "verilog",
	".vhd": "vhdl", ".asm": "asm", ".s": "asm",
	".mk": "makefile", "makefile": "makefile", "dockerfile": "dockerfile", ".dockerfile": "dockerfile",
	".cmake": "cmake", ".diff": "diff", ".patch": "diff",
}

// parseCode reads source code, in blocks that end where a definition does.
func parseCode(_ context.Context, in Input, emit func(block.Block) error) error {
	r, err := textReader(in)
	if err != nil {
		return err
	}
	w := &codeWriter{emit: emit, lang: codeLanguages[extensionOf(in.Name)], first: 1}
	return errors.Join(eachLine(r, w.line), w.flush())
}

type codeWriter struct {
	emit  func(block.Block) error
	lang  string
	text  strings.Builder
	first int // line number of text
	lines int
	blank bool // the last line was blank
}

func (w *codeWriter) line(line string) error {
	blank := strings.TrimSpace(line) == ""
	starts := w.blank && !blank && line[0] != ' ' && line[0] != '\t'
	if starts && w.text.Len() > stanzaBytes || w.text.Len()+len(line) > maxBlock {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if blank && w.text.Len() == 0 {
		w.first++ // the block begins at its first line with text
		return nil
	}
	w.blank = blank
	w.lines++
	w.text.WriteString(line)
	return nil
}

func (w *codeWriter) flush() error {
	b := block.Block{Kind: block.Code, Text: w.text.String(), Lang: w.lang, Row: w.first}
	w.text.Reset()
	w.first, w.lines = w.first+w.lines, 0
	return w.emit(b)
}
