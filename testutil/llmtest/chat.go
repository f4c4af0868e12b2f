package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/sashabaranov/go-openai"
)

func (h *Handler) chat(w http.ResponseWriter, r *http.Request, body []byte, f *Fault) {
	var request openai.ChatCompletionRequest
	if err := json.Unmarshal(body, &request); err != nil || len(request.Messages) == 0 {
		refuse(w, http.StatusBadRequest, "invalid_value", "messages must not be empty")
		return
	}
	reply := h.reply(request)
	if request.Stream {
		h.stream(w, r, request.Model, strings.SplitAfter(reply, " "), f)
		return
	}
	asked, said := 0, len(strings.Fields(reply))
	for _, m := range request.Messages {
		asked += len(strings.Fields(m.Content))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{
		ID: "chatcmpl-1", Object: "chat.completion", Model: request.Model,
		Choices: []openai.ChatCompletionChoice{{
			Message:      openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant, Content: reply},
			FinishReason: openai.FinishReasonStop,
		}},
		Usage: openai.Usage{PromptTokens: asked, CompletionTokens: said, TotalTokens: asked + said},
	})
}

func (h *Handler) reply(request openai.ChatCompletionRequest) string {
	switch {
	case h.options.ReplyTo != nil:
		return h.options.ReplyTo(request)
	case h.options.Reply != "":
		return h.options.Reply
	}
	return "echo: " + request.Messages[len(request.Messages)-1].Content
}

// stream sends one chunk per word, then the finish reason, then [DONE]. A fault
// with After applies between two words: with a Status it sends its body as an
// error event and ends.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, model string, words []string, f *Fault) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, word := range words {
		if f.After > 0 && i == f.After && h.interrupt(w, r, f) {
			return
		}
		event(w, chunk(model, word, ""))
	}
	event(w, chunk(model, "", openai.FinishReasonStop))
	event(w, "[DONE]")
}

func (h *Handler) interrupt(w http.ResponseWriter, r *http.Request, f *Fault) bool {
	if f.Status != 0 && !f.Hang && !f.Drop {
		event(w, f.body())
		return true
	}
	return h.strike(w, r, f)
}

func event(w http.ResponseWriter, data string) {
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}

func chunk(model, text string, finish openai.FinishReason) string {
	b, _ := json.Marshal(openai.ChatCompletionStreamResponse{
		ID: "chatcmpl-1", Object: "chat.completion.chunk", Model: model,
		Choices: []openai.ChatCompletionStreamChoice{{
			Delta: openai.ChatCompletionStreamChoiceDelta{Content: text}, FinishReason: finish,
		}},
	})
	return string(b)
}
