// Package llmtest is an OpenAI-compatible server for tests and benchmarks, which fails on command.
//
//	s := llmtest.NewServer(t, llmtest.Options{})
//	client, err := llm.NewClient(llm.Config{BaseURL: s.URL})
//	s.Script(llmtest.From(3, llmtest.Status(500)))   // the third request and later ones
//	…
//	s.Stats().Requests
//
// It answers /v1/embeddings with the vectors of an [Embedder] (the embedded static model unless told otherwise),
// /v1/chat/completions with an echo of the last message, at once or as server-sent events, and /v1/models. [Handler]
// is the same without a listener, for a command.
//
// A script is a list of rules, the first that fits a request wins, and an empty script answers well.
package llmtest
