package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/stop"
)

func TestPlacesOfTheUpstreams(t *testing.T) {
	inside := stop.Place{Address: "embedded", Embedded: true}
	for name, row := range map[string]struct {
		settings Settings
		want     map[string]stop.Place
	}{
		"embedded": {Settings{}, map[string]stop.Place{
			"llm": {Address: "embedded", Model: staticmodel.Name, Embedded: true}, "milvus": inside, "s3": inside,
		}},
		"without secrets": {
			Settings{
				LLMBaseURL: "https://u:secret@m:1/v1/?key=secret\n", EmbeddingModel: "fake-8",
				Milvus: "u:secret@milvus:19530", S3Endpoint: "http://u:secret@s3:8333/",
			}, map[string]stop.Place{
				"llm": {Address: "https://m:1/v1", Model: "fake-8"}, "milvus": {Address: "milvus:19530"},
				"s3": {Address: "http://s3:8333"},
			},
		},
		"one server for both models": {
			Settings{LLMBaseURL: "http://m/v1", EmbeddingModel: "fake-8", Enrich: "title", EnrichModel: "gpt"},
			map[string]stop.Place{
				"llm":    {Address: "http://m/v1", Model: "fake-8", ChatModel: "gpt"},
				"milvus": inside, "s3": inside,
			},
		},
		"another server for chat": {
			Settings{
				LLMBaseURL: "http://m/v1", EmbeddingModel: "fake-8", Enrich: "title", EnrichModel: "gpt",
				ChatBaseURL: "http://chat/v1", S3Endpoint: "aws", S3Region: "eu-central-1",
			}, map[string]stop.Place{
				"llm":    {Address: "http://m/v1", Model: "fake-8", ChatAddress: "http://chat/v1", ChatModel: "gpt"},
				"milvus": inside, "s3": {Address: "AWS, eu-central-1"},
			},
		},
		"a server for chat alone": {
			Settings{Enrich: "title", EnrichModel: "gpt", ChatBaseURL: "http://chat/v1"}, map[string]stop.Place{
				"llm": {
					Address: "embedded", Model: staticmodel.Name, ChatAddress: "http://chat/v1", ChatModel: "gpt",
				},
				"milvus": inside, "s3": inside,
			},
		},
		"state in a bucket": {Settings{State: "s3://b/p"}, map[string]stop.Place{
			"llm": {Address: "embedded", Model: staticmodel.Name, Embedded: true}, "milvus": inside,
			"s3": {Address: "embedded", StateAddress: "AWS"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, (&app{settings: &row.settings}).places())
		})
	}
}

// A stop of the bucket that documents come from named the embedded store.
func TestPlaceOfDocumentsInABucket(t *testing.T) {
	for _, row := range []struct {
		endpoint, where string
		paths           []string
	}{
		{"", "embedded", []string{"docs", "a/s3://b"}},
		{"", "embedded (documents: AWS)", []string{"docs", "s3://b/p"}},
		{"", "embedded (documents: AWS)", []string{"@list"}},
		{"http://s3", "http://s3", []string{"s3://b/p"}},
	} {
		a := &app{settings: &Settings{S3Endpoint: row.endpoint}, paths: row.paths}
		place := a.places()["s3"]
		assert.Equal(t, row.where, place.Where(), row.paths)
		assert.Equal(t, row.where == "embedded", place.Embedded, row.paths)
	}
}

// A password with a reserved character came back unchanged, or its beginning
// did: what follows it was taken for a path or for parameters.
func TestAddressesForPeopleHaveNoPassword(t *testing.T) {
	for address, want := range map[string]string{
		"https://user:p/ss@host/v1":           "",
		"https://user:p?ss@host/v1":           "",
		"https://user:p#ss@host/v1":           "",
		"https://user:p\\ss@host/v1":          "",
		"https://user:p ss@host/v1":           "",
		"https://user:12/ss@host/v1":          "",
		"https://user:12?ss@host/v1":          "",
		"https://user:12#ss@host/v1":          "",
		"https://user:12%2Fss@host/v1":        "https://host/v1",
		"https://user:p@ss@host/v1":           "https://host/v1",
		"https:user:12@host/v1":               "host/v1",
		"user:p/ss@milvus:19530":              "",
		"user:12/ss@milvus:19530":             "",
		"user:pass@milvus:19530":              "milvus:19530",
		"milvus:19530":                        "milvus:19530",
		"milvus":                              "milvus",
		"10.0.3.7:19530":                      "10.0.3.7:19530",
		"[::1]:19530":                         "[::1]:19530",
		"http://[fe80::1]:8333/":              "http://[fe80::1]:8333",
		" https://u:pw@m:1/v1/?key=secret \n": "https://m:1/v1",
		"https://m/v1/?key=secret#at":         "https://m/v1",
		"https://m/a%20b/v1":                  "https://m/a%20b/v1",
		"https://m:port/v1":                   "",
		"http://m\x00/v1":                     "",
		"":                                    "",
	} {
		assert.Equal(t, want, publicAddress(address), "%q", address)
	}
}

// What doctor looked at on this machine was taken for a server, where the
// address named a bucket, too.
func TestRemedyOfWhatIsOnThisMachine(t *testing.T) {
	const local = "check that the folder"
	for name, row := range map[string]struct {
		settings Settings
		finding  pipeline.Finding
		local    bool
	}{
		"originals":                     {Settings{}, pipeline.Finding{Upstream: "s3"}, true},
		"originals, state in a bucket":  {Settings{State: "s3://b/p"}, pipeline.Finding{Upstream: "s3"}, true},
		"object store":                  {Settings{S3Endpoint: "http://s3"}, pipeline.Finding{Upstream: "s3"}, false},
		"vectors":                       {Settings{}, pipeline.Finding{Upstream: "milvus"}, true},
		"vector store":                  {Settings{Milvus: "m:1"}, pipeline.Finding{Upstream: "milvus"}, false},
		"model":                         {Settings{}, pipeline.Finding{Upstream: "llm"}, true},
		"model server":                  {Settings{LLMBaseURL: "http://m"}, pipeline.Finding{Upstream: "llm"}, false},
		"chat beside an embedded model": {Settings{}, pipeline.Finding{Upstream: "llm", Chat: true}, false},
	} {
		row.finding.Stop = &pipeline.StopError{Kind: pipeline.StopDeferred}
		row.finding.Address = (&app{settings: &row.settings}).objectPlace().Where()
		assert.Equal(t, row.local, strings.HasPrefix(row.settings.remedy(row.finding), local), name)
	}
}
