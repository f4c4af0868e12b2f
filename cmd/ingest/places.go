package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/penstock-go/penstock/llm/staticmodel"
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
		upstream.VectorStore: {Address: s.vectorAddress()},
		upstream.ObjectStore: {Address: s.objectAddress()},
	}
}

// modelPlace is that of the embedding model, and of the chat model where that
// is another: both have one breaker.
func (s *Settings) modelPlace() stop.Place {
	place := stop.Place{Address: embedded, Model: staticmodel.Name}
	if s.LLMBaseURL != "" {
		place = stop.Place{Address: publicAddress(s.LLMBaseURL), Model: s.EmbeddingModel}
	}
	if s.Enrich == "" || s.EnrichModel == "" {
		return place
	}
	place.Model += fmt.Sprintf(" (chat: %s)", s.EnrichModel)
	if chat := publicAddress(cmp.Or(s.ChatBaseURL, s.LLMBaseURL)); chat != place.Address {
		place.Address += fmt.Sprintf(" (chat: %s)", chat)
	}
	return place
}

func (s *Settings) vectorAddress() string {
	if s.Milvus == "" {
		return embedded
	}
	return publicAddress(s.Milvus)
}

// objectAddress is that of the originals. Documents and a state in a bucket are
// read from the same endpoint, and from AWS where the originals are embedded.
func (s *Settings) objectAddress() string {
	switch _, _, remote := s.remoteState(); {
	case s.S3Endpoint == "" && remote:
		return embedded + " (state: " + s.aws() + ")"
	case s.S3Endpoint == "":
		return embedded
	case s.S3Endpoint == awsItself:
		return s.aws()
	}
	return publicAddress(s.S3Endpoint)
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
