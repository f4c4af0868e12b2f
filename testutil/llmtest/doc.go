// Package llmtest is an OpenAI-compatible server for tests and benchmarks that
// fails on demand.
//
//	s := llmtest.NewServer(t, llmtest.Options{})
//	client, err := llm.NewClient(llm.Config{BaseURL: s.URL})
//	s.Script(llmtest.From(3, llmtest.Status(500)))   // the third request and later ones
//	…
//	s.Stats().Requests
//
// It answers /v1/embeddings with the vectors of an [Embedder] (by default the
// embedded static model), /v1/chat/completions with an echo of the last
// message, as one answer or as server-sent events, and /v1/models. [Handler] is
// the same without a listener.
//
// A script is a list of rules; the first that matches a request applies. With
// an empty script every request succeeds.
package llmtest
