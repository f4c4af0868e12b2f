// Package staticmodel embeds text without a server: a table of 30,522 token
// vectors inside the binary.
//
//	model := staticmodel.New()
//	resp, err := model.CreateEmbeddings(ctx, openai.EmbeddingRequestStrings{
//		Model: staticmodel.Name,
//		Input: []string{"When does the breaker open?"},
//	})
//
// A [Model] has the methods of an OpenAI client that a pipeline needs, with the
// same types, answers and errors, so that it can replace such a client.
// [Model.Embed] returns a single vector.
//
// # How a vector is computed
//
// The text is split into WordPiece tokens exactly as the tokenizer of
// all-MiniLM-L6-v2 does it: lower case, accents dropped, each ideograph and
// punctuation mark a word of its own, the longest matching token first. The
// vector is the mean of the tokens' rows, scaled to length one. Unknown words
// do not count, nor do the literal texts "[PAD]", "[UNK]", "[CLS]", "[SEP]" and
// "[MASK]". Bytes that are not UTF-8 count as U+FFFD, which is dropped.
//
// A text without a known token (only emoji, for example, or only characters
// that the tokenizer drops) still gets a vector of length one: its unknown
// words are hashed into a direction, so that equal texts get equal vectors and
// different ones do not. Such a vector has no meaning, and is found by equality
// only. Only the empty string is refused.
//
// Order and context of words do not count. On short technical English, the
// vectors find about three quarters of what a transformer finds, at more than
// ten thousand texts per second on one core. They are best combined with a text
// index.
//
// The same text has the same vector in every release with the same [Name], on
// every processor. The table is derived from all-MiniLM-L6-v2 (Apache License
// 2.0), see NOTICE in this folder; scripts/staticmodel regenerates it.
package staticmodel
