package main

import (
	"github.com/penstock-go/penstock/pipeline"
	upstream "github.com/penstock-go/penstock/pipeline/service"
)

// flagsOf are the flags that decide about an upstream.
type flagsOf struct {
	address     string
	credentials string
	fit         string // what to change if it does not fit the rest
}

func flagsFor(f pipeline.Finding) flagsOf {
	switch {
	case f.Upstream == upstream.ObjectStore:
		return flagsOf{
			"--s3-endpoint", "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, --s3-region and the permissions in the bucket",
			"create the bucket, use --create-bucket, or name another one with --s3-bucket",
		}
	case f.Upstream == upstream.VectorStore:
		return flagsOf{
			"--milvus", "--milvus-user and --milvus-password, or --milvus-api-key",
			"use another collection (--collection), or the model whose vectors it holds (--embedding-model)",
		}
	case f.Chat:
		return flagsOf{
			"--chat-base-url", "--chat-api-key and the quota",
			"set --enrich-model to a chat model of that server, and --chat-base-url to its API, which often ends in /v1",
		}
	}
	return flagsOf{
		"--llm-base-url", "--llm-api-key and the quota",
		"set --embedding-model to an embedding model of that server, and --llm-base-url to its API, which often ends in /v1",
	}
}

// remedy says what to do about a finding.
func (s *Settings) remedy(f pipeline.Finding) string {
	if s.embeds(f) && f.Stop.Kind != pipeline.StopConfiguration {
		folder := "the folder of --state"
		if _, _, remote := s.remoteState(); remote {
			folder = "the folder " + defaultState
		}
		return "check that " + folder + " is complete and writable; " + f.Hint
	}
	flags := flagsFor(f)
	if f.Stop.Upstream == upstream.VectorStore { // also where a model answers that does not fit it
		flags.fit = flagsFor(pipeline.Finding{Upstream: upstream.VectorStore}).fit
	}
	if f.Chat && s.ChatBaseURL == "" {
		flags.address = "--llm-base-url"
	}
	switch f.Stop.Kind {
	case pipeline.StopDeferred:
		text := "check that the server runs, that this machine can reach it and that " + flags.address + " is right"
		if f.RetryAt != nil {
			text += "; otherwise run again after " + clock(*f.RetryAt)
		}
		return text
	case pipeline.StopDenied:
		return "check " + flags.credentials
	case pipeline.StopConfiguration:
		return flags.fit
	case pipeline.StopInterrupted, pipeline.StopFault:
	}
	return f.Hint
}
