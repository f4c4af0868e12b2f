package main

// The texts below the first line of 'ingest help VERB'. They are those of the
// manual pages, too.

// Help describes the verb.
func (runCmd) Help() string {
	return `Documents that have not changed cost a read and no call. A run that an upstream stops keeps what is done; run the ` +
		`same command again to continue. The summary says how it ended, the exit code whether to run again (see 'ingest ` +
		`help exit-codes').

` + exampleOf(
		"ingest README.md docs/", "ingest --dry-run docs/", "ingest 'docs/**/*.md' --meta team=search",
		"ingest s3://bucket/manuals/ --prune", "curl -s https://example.org/ | ingest - --stdin-name page.html") + `

A path that has the name of a command, such as help, needs a folder in front of it or the command itself: ` +
		`'ingest ./help', 'ingest run help'.`
}

// Help describes the verb.
func (retryCmd) Help() string {
	return `Reads the documents that 'ingest status' lists again, from where they were found, and nothing else. Dead letters ` +
		`are tried although they have not changed.

` + exampleOf("ingest retry")
}

// Help describes the verb.
func (deleteCmd) Help() string {
	return `A document whose file still exists is ingested again by the next run over its folder.

` + exampleOf("ingest delete docs/old.md", "ingest delete docs/archive/")
}

// Help describes the verb.
func (searchCmd) Help() string {
	return `Embeds the question with the model whose vectors the collection holds. The embedded store ranks by words, too.

` + exampleOf(
		`ingest search "when does the breaker open?"`, `ingest search -n 20 --full "retry"`,
		`ingest search --json --where 'meta["team"] == "search"' "retry"`)
}

// Help describes the verb.
func (statusCmd) Help() string {
	return `Reads the journal only and takes no lock, so it works during a run. Deferred documents are grouped by reason; ` +
		`--json lists each of them.

` + exampleOf("ingest status", "ingest --json status | jq -r '.problems[].id'")
}

// Help describes the verb.
func (verifyCmd) Help() string {
	return `Reads the stores and changes nothing without --repair. Differences are exit code 65.

` + exampleOf("ingest verify", "ingest verify --deep", "ingest verify --repair && ingest retry")
}

// Help describes the verb.
func (serveCmd) Help() string {
	return `Runs one pass over the inputs after another until a signal ends it. The page and the metrics are served on the ` +
		`loopback address unless there is a token.

` + exampleOf("ingest serve docs/", "PENSTOCK_TOKEN=... ingest serve --listen :8091 --interval 5m s3://bucket/manuals/")
}

// Help describes the verb.
func (configCmd) Help() string {
	return `Each line is a flag without its leading dashes, its value and its source: the command line, a variable of the ` +
		`environment, the configuration file or the default. The file is a flat map of these names.

` + exampleOf("ingest config", "ingest --json config | jq -r 'select(.source != \"default\").name'")
}

// Help describes the verb.
func (parseCmd) Help() string {
	return `Reads the file as a run does, calls nothing and writes nothing.

` + exampleOf("ingest parse report.pdf", "ingest --json parse report.pdf | head")
}

// Help describes the verb.
func (chunkCmd) Help() string {
	return `Reads the file as a run does, calls nothing and writes nothing. The texts are those that 'search' finds.

` + exampleOf("ingest chunk report.pdf", "ingest chunk --chunk-tokens 128 --chunk-overlap -1 report.pdf")
}
