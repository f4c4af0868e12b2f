package main

import (
	"errors"
	"strings"

	"github.com/penstock-go/penstock/pipeline"
	upstream "github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
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

// unavailable says what to do about a server that does not do its work.
func (f flagsOf) unavailable(ended *pipeline.StopError) string {
	switch {
	case stop.Throttled(ended.Err):
		return "the server answers and asks for patience: raise its rate limit or the quota, or lower --rate"
	case fromServer(ended):
		return "the server answers with an error of its own: see its log; behind " + f.address + " may be a proxy without it"
	}
	return "check that the server runs, that this machine can reach it and that " + f.address + " is right"
}

// fromServer reports whether a server has answered over HTTP.
func fromServer(ended *pipeline.StopError) bool {
	type response interface {
		error
		HTTPStatusCode() int // of the SDK of S3
	}
	if r, ok := errors.AsType[response](ended.Err); ok {
		return r.HTTPStatusCode() != 0
	}
	return upstream.StatusOf(ended.Err) != 0
}

// advice says what to do about a stop that time does not end; empty for any
// other, and where the reason says it already.
func (s *Settings) advice(ended *pipeline.Stop) string {
	if ended == nil || ended.Upstream == "" || ended.Address == embedded || strings.Contains(ended.Reason, "--") {
		return ""
	}
	flags := flagsFor(pipeline.Finding{Upstream: ended.Upstream})
	if ended.Upstream == upstream.Model && s.Enrich != "" {
		flags.credentials += ", those of the chat model too (--chat-api-key)"
		flags.fit += "; check --enrich-model and --chat-base-url, too"
	}
	switch ended.Kind {
	case pipeline.StopDenied:
		return "check " + flags.credentials + ", then run again"
	case pipeline.StopConfiguration:
		return flags.fit
	case pipeline.StopDeferred, pipeline.StopInterrupted, pipeline.StopFault:
	}
	return ""
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
		text, otherwise := flags.unavailable(f.Stop), "; otherwise run again after "
		if fromServer(f.Stop) {
			otherwise = "; run again after "
		}
		if f.RetryAt != nil {
			text += otherwise + clock(*f.RetryAt)
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
