package main

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/testutil/llmtest"
)

var tag = regexp.MustCompile(`<[^>]*>`)

// The page said "closed, calls are admitted" and "0 waiting" while the model
// server was down and everything waited.
func TestThePageSaysWhatIsWrong(t *testing.T) {
	c, model := withModel(t, llmtest.Options{})
	corpus(t, c, 60)
	model.Script(llmtest.All(inOwnWords(http.StatusInternalServerError)))
	s := c.serve(t, "--interval=1h", "--breaker-reset=900ms", "docs")
	s.await(t, "/", "<h1>The model server has been failing since ")
	s.await(t, "/", "<strong>60 documents wait</strong>")
	_, page := s.get(t, "/")
	shows(t, "page", page)
	assert.Contains(t, page, "<bdi>"+model.URL)
	assert.Contains(t, page, `<p class="where"><bdi>embedded, in .penstock</bdi></p>`)
	text := tag.ReplaceAllString(page, "")
	assert.Regexp(t, `What to do Run ingest doctor `, text)

	model.Script(llmtest.All(inOwnWords(http.StatusUnauthorized)))
	s.await(t, "/", "<h1>The model server has refused the credentials or the quota since ")
	model.Script()
	s.await(t, "/", "<h1>All is well.</h1>")
	s.await(t, "/", "60 documents are complete")
}
