package complete

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Shells are those for which Script writes a script.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// Script writes the completion script of a shell for the named command. Other
// shells than those of Shells are an error.
func Script(to io.Writer, shell, name string) error {
	command := &cobra.Command{Use: name}
	var script bytes.Buffer
	var err error
	switch shell {
	case "bash":
		err = command.GenBashCompletionV2(&script, true)
	case "zsh":
		err = command.GenZshCompletion(&script)
	case "fish":
		err = command.GenFishCompletion(&script, true)
	case "powershell":
		err = command.GenPowerShellCompletionWithDesc(&script)
	default:
		return fmt.Errorf("no completion for %q; choose from %s", shell, strings.Join(Shells, ", "))
	}
	if err != nil {
		return err
	}
	text := script.String()
	for _, change := range literal[shell] {
		if !strings.Contains(text, change.from) {
			return fmt.Errorf("the script lacks the line %q", change.from)
		}
		text = strings.ReplaceAll(text, change.from, change.to)
	}
	_, err = io.WriteString(to, text)
	return err
}

type change struct{ from, to string }

// literal has the scripts give the words to the command unchanged. Cobra's
// evaluate the whole line, and what $(…) holds in it is run by the tab key.
var literal = map[string][]change{
	"bash": {{
		`requestComp="${words[0]} __complete ${args[*]}"`,
		`[[ ${words[0]} == *[^[:alnum:]_./~\$-]* ]] && return` + "\n" +
			`    requestComp="${words[0]} __complete"` + "\n" +
			`    ((${#args[@]})) && requestComp+=$(printf ' %q' "${args[@]}")`,
	}, {
		// printf has written the empty word
		`if [[ -z ${cur} && ${lastChar} != = ]]; then`,
		`if [[ -z ${cur} && ${lastChar} != = && -n ${lastParam} ]]; then`,
	}},
	"zsh": {
		{`words=("${=words[1,CURRENT]}")`, `words=("${(@)words[1,CURRENT]}")`},
		{`flagPrefix="-P ${BASH_REMATCH}"`, `flagPrefix="-P ${(q)BASH_REMATCH}"`},
		{
			`requestComp="${words[1]} __complete ${words[2,-1]}"`,
			`[[ ${words[1]} == *[^[:alnum:]_./~\$-]* ]] && return` + "\n" +
				`    requestComp="${words[1]} __complete ${(j: :)${(@q)${(@Q)words[2,-1]}}}"`,
		},
		// (q) has written the empty word
		{`if [ "${lastChar}" = "" ]; then`, `if [[ -z "${lastChar}" && -n "${lastParam}" ]]; then`},
	},
	"fish": {{
		`set -l requestComp "INGEST_ACTIVE_HELP=0 $args[1] __complete $args[2..-1] $lastArg"`,
		"set -l given\n" +
			"    if test (count $args) -gt 1\n" +
			"        set given (string escape -- $args[2..-1])\n" +
			"    end\n" +
			`    set -l requestComp "INGEST_ACTIVE_HELP=0 $args[1] __complete $given $lastArg"`,
	}},
	"powershell": {{
		`$RequestComp="$Program __complete $Arguments"`,
		"$Given = $CommandAst.CommandElements | Select-Object -Skip 1 |\n" +
			"        Where-Object { $_.Extent.StartOffset -lt $CursorPosition } | ForEach-Object {\n" +
			"            $Content = [System.Management.Automation.Language.CodeGeneration]::EscapeSingleQuotedStringContent(" +
			"$_.Extent.Text)\n" +
			`            "'$Content'"` + "\n" +
			"        }\n" +
			`    $RequestComp="$Program __complete $Given"`,
	}},
}
