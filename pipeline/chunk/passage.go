package chunk

// Chunk is a passage of a document.
type Chunk struct {
	// Ordinal counts the chunks of a document from 0.
	Ordinal int `json:"ordinal"`
	// Text is the passage: never blank, no heading path in it.
	Text string `json:"text"`
	// Heading is the path of headings that leads to the passage, as
	// "Guide > Setup > Windows"; its outer parts are left out where it would
	// take more than a quarter of the budget. It starts with Title if the
	// document has one and no outermost heading.
	Heading string `json:"heading,omitempty"`
	// Title is the document's title, or else its first heading.
	Title string `json:"title,omitempty"`
	// Page is the page or slide where Text starts, from 1; 0 without pages.
	Page int `json:"page,omitempty"`
	// Section is the sheet, attachment or archive member.
	Section string `json:"section,omitempty"`
	// Row is the first row, record or line of source code in Text, from 1; 0 if
	// they are not counted.
	Row int `json:"row,omitempty"`
	// Start and End are where the passage begins and ends in the extracted
	// text; see [block.Block]. The part that Repeated counts lies before Start.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// Lang is the language of the code in Text, or the language that the
	// document declares.
	Lang string `json:"lang,omitempty"`
	// Tokens is Config.Count of EmbedText.
	Tokens int `json:"tokens"`
	// Repeated is how many bytes at the start of Text were in an earlier chunk
	// or are a repeated table header.
	Repeated int `json:"repeated,omitempty"`
}

// EmbedText is what the embedding model should see: the heading path and the
// passage.
func (c Chunk) EmbedText() string { return embedText(c.Heading, c.Text) }

func embedText(heading, text string) string {
	if heading == "" {
		return text
	}
	return heading + "\n\n" + text
}
