package main

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/testutil/llmtest"
)

// A mounted secret ends in a newline. Nothing was sent with it, and five
// "failures" of a healthy server ended the run with 75.
func TestMountedKeyEndsInANewline(t *testing.T) {
	const key = "sk-of-this-test"
	variables := map[string]string{
		"llm-api-key": "PENSTOCK_LLM_API_KEY", "chat-api-key": "PENSTOCK_CHAT_API_KEY",
	}
	for name, given := range map[string]func(c *command, flag string) (env, args []string){
		"environment": func(_ *command, flag string) ([]string, []string) {
			return []string{variables[flag] + "=" + key + "\n"}, nil
		},
		"flag": func(_ *command, flag string) ([]string, []string) {
			return nil, []string{"--" + flag + "=" + key + "\r\n"}
		},
		"file": func(c *command, flag string) ([]string, []string) {
			c.write(t, "keys.yaml", fmt.Sprintf("%s: %s\n", flag, strconv.Quote(key+"\n")))
			return nil, []string{"--config=keys.yaml"}
		},
	} {
		for flag := range variables {
			t.Run(name+", "+flag, func(t *testing.T) { keyFits(t, key, flag, given) })
		}
	}
}

// keyFits runs the commands that make a client with the setting named flag.
func keyFits(t *testing.T, key, flag string, given func(*command, string) (env, args []string)) {
	model, other := llmtest.NewServer(t, llmtest.Options{Key: key}), llmtest.NewServer(t, llmtest.Options{})
	c := newCommand(t)
	env, args := given(c, flag)
	c.env = env
	if flag == "llm-api-key" {
		c.env = append(c.env, "PENSTOCK_LLM_BASE_URL="+model.URL+"\n", "PENSTOCK_EMBEDDING_MODEL="+staticmodel.Name,
			"PENSTOCK_ENRICH=title", "PENSTOCK_ENRICH_MODEL=chat") // at the same server, with the same key
	} else {
		c.env = append(c.env, append(atModel(other.URL), "PENSTOCK_CHAT_BASE_URL="+model.URL, "PENSTOCK_ENRICH=title",
			"PENSTOCK_ENRICH_MODEL=chat")...)
	}
	corpus(t, c, 1)
	c.write(t, "docs/untitled.txt", "A note without a title says that the sluice is shut.")
	for _, command := range [][]string{{"docs"}, {"search", "the sluice"}, {"verify"}, {"doctor"}} {
		o := c.run(t, append(args, command...)...)
		require.Zero(t, o.code, "%v: %s%s", command, o.stdout, o.stderr)
	}
	assert.Positive(t, model.Stats().ByPath[chatPath])
}

// The variable that everybody sets was sent to any chat server.
func TestKeyOfTheEnvironmentStaysWithItsServer(t *testing.T) {
	told := make(chan string, 1)
	chat := serving(t, func(w http.ResponseWriter, r *http.Request) {
		told <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	})
	c := newCommand(t, "OPENAI_API_KEY=sk-embeddings", "PENSTOCK_ENRICH=summary", "PENSTOCK_ENRICH_MODEL=chat",
		"PENSTOCK_CHAT_BASE_URL="+chat+"/v1")
	corpus(t, c, 1)
	assert.Equal(t, exitDenied, c.ingest(t, "docs").code)
	assert.Empty(t, <-told)
}

// --timeout cut the answer of a chat model short that was only thinking.
func TestTimeoutDoesNotCutAChatModelShort(t *testing.T) {
	chat := llmtest.NewServer(t, llmtest.Options{Reply: "A title", Delay: 3 * shortestTimeout})
	c := newCommand(t, "PENSTOCK_CHAT_BASE_URL="+chat.URL, "PENSTOCK_ENRICH=title", "PENSTOCK_ENRICH_MODEL=chat",
		"PENSTOCK_TIMEOUT="+shortestTimeout.String())
	c.write(t, "docs/untitled.txt", "A note without a title says that the sluice is shut.")
	o := c.ingest(t, "docs")
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Zero(t, o.summary.Unenriched)
	assert.Equal(t, "A title", searchMeta(t, c, "the sluice").Title)
}

func TestTimeoutBoundsEmbeddings(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	model.Script(llmtest.All(llmtest.Hang()))
	c.write(t, "docs/a.txt", "A note.")
	requireRetry(t, c.ingest(t, "--timeout="+shortestTimeout.String(), "docs"), "llm")
}
