// Package staticmodel embeds text without a server: a table of 30,522 token vectors inside the binary.
//
//	model := staticmodel.New()
//	resp, err := model.CreateEmbeddings(ctx, openai.EmbeddingRequestStrings{
//		Model: staticmodel.Name,
//		Input: []string{"When does the breaker open?"},
//	})
//
// A [Model] has the methods of an OpenAI client that a pipeline needs, with its types, its answers and its errors, so
// that it goes wherever such a client goes. [Model.Embed] is the short way to one vector.
//
// # How a vector comes about
//
// The text is split into WordPiece tokens exactly as the tokenizer of all-MiniLM-L6-v2 does it: lower case, accents
// dropped, each ideograph and punctuation mark a word of its own, the longest token that fits first. The vector is the
// mean of the tokens' rows, scaled to length one. Unknown words have no part in it, nor have the literal texts
// "[PAD]", "[UNK]", "[CLS]", "[SEP]" and "[MASK]". Bytes that are not UTF-8 count as U+FFFD, which is dropped.
//
// A text without any known token (only emoji, say, or only characters that the tokenizer drops) still gets a vector of
// length one: its unknown words are hashed into a direction, so that equal texts meet and different ones do not. Such a
// vector says nothing about meaning, and is found by equality alone. Only the empty string is refused.
//
// Order and context of words do not count. On short technical English, the vectors find about three quarters of what
// a transformer finds and are best used beside a text index, at ten thousand and more texts a second on one core.
//
// The same text gives the same vector in every release that has the same [Name], on every processor. The table is
// derived from all-MiniLM-L6-v2 (Apache License 2.0), see NOTICE in this folder; scripts/staticmodel makes it again.
package staticmodel
