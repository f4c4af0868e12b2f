package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-go/penstock/internal/secret"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/pipeline"
)

// enrichment configures what a chat model adds to documents.
func (a *app) enrichment(config *pipeline.Config) error {
	s := a.settings
	if s.Enrich == "" {
		return nil
	}
	wanted, err := enrichmentKinds(s.Enrich)
	if err != nil {
		return usage(err)
	}
	address := cmp.Or(s.ChatBaseURL, s.LLMBaseURL)
	switch {
	case s.EnrichModel == "":
		return usage(errors.New("--enrich needs a chat model; set --enrich-model"))
	case address == "":
		return usage(errors.New("--enrich needs a chat model server; set --chat-base-url or --llm-base-url"))
	}
	key, err := s.chatKey(address)
	if err != nil {
		return configuration(err)
	}
	client, err := llm.NewClient(llm.Config{BaseURL: address, APIKey: key, CAFile: s.CACert})
	if err != nil {
		return configuration(fmt.Errorf("--chat-base-url: %w", err))
	}
	wanted.Client, wanted.Model, wanted.Budget = client, s.EnrichModel, s.EnrichBudget
	config.Enrich = wanted
	return nil
}

// noKey is a key that llm does not send. An empty one would be that of the
// environment.
const noKey = " "

// chatKey is the key of the chat model's server. That of one server is never
// sent to another.
func (s *Settings) chatKey(address string) (string, error) {
	key, err := secret.Trim("--chat-api-key", s.ChatAPIKey)
	if key == "" && err == nil && strings.TrimSpace(address) == strings.TrimSpace(s.LLMBaseURL) {
		key, err = secret.Trim("--llm-api-key", s.LLMAPIKey)
	}
	return cmp.Or(key, noKey), err
}

func enrichmentKinds(list string) (e pipeline.Enrichment, err error) {
	for kind := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(kind) {
		case "title":
			e.Title = true
		case "summary":
			e.Summary = true
		case "context":
			e.Context = true
		default:
			return e, fmt.Errorf("--enrich: unknown kind %q; choose from title, summary, context", kind)
		}
	}
	return e, nil
}
