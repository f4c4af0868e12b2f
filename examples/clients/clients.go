// Package clients puts a breaker below SDKs that have no door of their own.
// Each needs three lines: the client with the breaker, the option that takes
// it, and the option that ends the SDK's own retries, of which the breaker
// would see each, and the caller one.
package clients

import (
	"net/http"

	"github.com/meilisearch/meilisearch-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/penstock-go/penstock/httpdoor"
	"github.com/penstock-go/penstock/resilience"
)

// OpenAI is the official SDK of OpenAI with b below it.
func OpenAI(baseURL, key string, b *resilience.Breaker) openai.Client {
	client := &http.Client{Transport: httpdoor.Transport(nil, httpdoor.Config{Breaker: b})}
	return openai.NewClient(option.WithBaseURL(baseURL), option.WithAPIKey(key),
		option.WithHTTPClient(client), option.WithMaxRetries(0))
}

// Meilisearch is the SDK of a search engine that is called over REST.
func Meilisearch(host, key string, b *resilience.Breaker) meilisearch.ServiceManager {
	client := &http.Client{Transport: httpdoor.Transport(nil, httpdoor.Config{Breaker: b})}
	return meilisearch.New(host, meilisearch.WithAPIKey(key),
		meilisearch.WithCustomClient(client), meilisearch.DisableRetries())
}
