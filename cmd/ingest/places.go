package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	upstream "github.com/penstock-go/penstock/pipeline/service"
	"github.com/penstock-go/penstock/pipeline/stop"
)

// embedded is the address of what is kept, or computed, on this machine.
const embedded = "embedded"

// places says where the upstreams are, by name.
func (a *app) places() map[string]stop.Place {
	s := a.settings
	return map[string]stop.Place{
		upstream.Model:       s.modelPlace(),
		upstream.VectorStore: s.vectorPlace(),
		upstream.ObjectStore: a.objectPlace(),
	}
}

// modelPlace is that of the embedding model, and of the chat model where that
// is another: both have one breaker.
func (s *Settings) modelPlace() stop.Place {
	place := stop.Place{Address: s.modelAddress(false), Model: staticmodel.Name, Embedded: s.LLMBaseURL == ""}
	if !place.Embedded {
		place.Model = s.EmbeddingModel
	}
	if s.Enrich == "" || s.EnrichModel == "" {
		return place
	}
	place.ChatModel, place.Embedded = s.EnrichModel, false
	if chat := s.modelAddress(true); chat != place.Address {
		place.ChatAddress = chat
	}
	return place
}

func (s *Settings) vectorPlace() stop.Place {
	if s.Milvus == "" {
		return stop.Place{Address: embedded, Embedded: true}
	}
	return stop.Place{Address: publicAddress(s.Milvus)}
}

// objectPlace is that of the originals. Documents and a state in a bucket are
// read from the same endpoint, and from AWS where the originals are embedded.
func (a *app) objectPlace() stop.Place {
	s := a.settings
	if s.S3Endpoint != "" {
		return stop.Place{Address: s.stateAddress()}
	}
	place := stop.Place{Address: embedded}
	if _, _, remote := s.remoteState(); remote {
		place.StateAddress = s.aws()
	}
	if slices.ContainsFunc(a.paths, inBucket) {
		place.SourceAddress = s.aws()
	}
	place.Embedded = place.StateAddress+place.SourceAddress == ""
	return place
}

// inBucket reports whether an input may have documents in a bucket: a list may
// name some.
func inBucket(path string) bool {
	return strings.HasPrefix(path, "s3://") || strings.HasPrefix(path, "@")
}

// embeds reports whether what a finding is about is on this machine.
func (s *Settings) embeds(f pipeline.Finding) bool {
	switch f.Upstream {
	case upstream.Model:
		return s.LLMBaseURL == "" && !f.Chat
	case upstream.VectorStore:
		return s.Milvus == ""
	case upstream.ObjectStore:
		return s.S3Endpoint == ""
	}
	return false
}

func (s *Settings) aws() string {
	if s.S3Region == "" {
		return "AWS"
	}
	return "AWS, " + s.S3Region
}

// publicAddress is the scheme, host and path of an address. It is empty where
// these cannot be told from userinfo: with a reserved character in it, the
// password looks like a port, a path or parameters.
func publicAddress(address string) string {
	address = strings.TrimSpace(address)
	host, isURL := address, strings.Contains(address, "://")
	if !isURL {
		host = "//" + address
	}
	u, err := url.Parse(host)
	if err != nil || strings.Contains(u.EscapedPath()+u.RawQuery+u.EscapedFragment(), "@") {
		return ""
	}
	public := u.Host + strings.TrimRight(u.EscapedPath(), "/")
	if !isURL {
		return public
	}
	return u.Scheme + "://" + public
}
