package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

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
	address, key := cmp.Or(s.ChatBaseURL, s.LLMBaseURL), s.ChatAPIKey
	if address == s.LLMBaseURL { // never send one server's key to another
		key = cmp.Or(key, s.LLMAPIKey)
	}
	switch {
	case s.EnrichModel == "":
		return usage(errors.New("--enrich needs a chat model; set --enrich-model"))
	case address == "":
		return usage(errors.New("--enrich needs a chat model server; set --chat-base-url or --llm-base-url"))
	case s.EnrichBudget < 0:
		return usage(errors.New("--enrich-budget is negative"))
	}
	client, err := llm.NewClient(llm.Config{
		BaseURL: address, APIKey: key, Timeout: s.Timeout, CAFile: s.CACert,
	})
	if err != nil {
		return configuration(fmt.Errorf("--chat-base-url: %w", err))
	}
	wanted.Client, wanted.Model, wanted.Budget = client, s.EnrichModel, s.EnrichBudget
	config.Enrich = wanted
	return nil
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
