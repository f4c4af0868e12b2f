package main

import "time"

const (
	defaultState      = ".penstock"
	defaultCollection = "documents"
	defaultBucket     = "penstock"
)

// cli is the command line.
type cli struct {
	Version versionFlag `group:"common" help:"Show the version, the commit and the Go version of this build."`

	Settings `embed:""`

	Run    runCmd    `cmd:"" default:"withargs" group:"documents" help:"Ingest files, folders, globs, URLs and buckets (the default command)."`
	Retry  retryCmd  `cmd:"" group:"documents" help:"Ingest only documents that failed or were deferred."`
	Delete deleteCmd `cmd:"" group:"documents" help:"Delete documents: chunks, originals and journal entries."`
	Search searchCmd `cmd:"" group:"documents" help:"Find the chunks nearest to a question."`

	Status statusCmd `cmd:"" group:"operation" help:"Show the journal: totals, the last run, dead letters."`
	Verify verifyCmd `cmd:"" group:"operation" help:"Compare the journal with the vector store and the originals: what is missing, stale, orphaned or damaged."`
	Doctor doctorCmd `cmd:"" group:"operation" help:"Call each upstream once, and report problems and how to fix them."`
	Serve  serveCmd  `cmd:"" group:"operation" help:"Ingest repeatedly, and serve a status page, /metrics, /healthz and /readyz."`
	Config configCmd `cmd:"" group:"operation" help:"Show the settings in force and where each comes from, with secrets masked."`

	Parse parseCmd `cmd:"" group:"inspection" help:"Show the blocks that a file is parsed into."`
	Chunk chunkCmd `cmd:"" group:"inspection" help:"Show the chunks that a file is split into."`

	Help        helpCmd       `cmd:"" group:"command" help:"Show help on a command or a topic, or the manual."`
	Completion  completionCmd `cmd:"" group:"command" help:"Print the completion script of a shell."`
	ShowVersion versionCmd    `cmd:"" name:"version" group:"command" help:"Show the version of this build."`
}

// Settings are the flags of every verb. Each is taken from the command line,
// the environment or the configuration file, in this order.
type Settings struct {
	ConfigFile string        `group:"common" name:"config" placeholder:"FILE" env:"PENSTOCK_CONFIG" help:"Configuration file (YAML). Default: penstock.yaml, if it exists."`
	State      string        `group:"common" default:"${state}" env:"PENSTOCK_STATE" placeholder:"DIR" filled:"" help:"Folder for the journal and the embedded stores, on a local disk (${default}). Given s3://bucket/prefix, the journal is kept there and the embedded stores in ${state}."`
	StateLease time.Duration `group:"common" default:"60s" env:"PENSTOCK_STATE_LEASE" help:"How long a state in s3:// stays locked after a run is killed (${default})."`

	S3Endpoint   string `name:"s3-endpoint" group:"object store" env:"PENSTOCK_S3_ENDPOINT,AWS_ENDPOINT_URL_S3" placeholder:"URL" help:"S3 endpoint for the originals; 'aws' for AWS itself. Default: files in the state folder."`
	S3Region     string `name:"s3-region" group:"object store" env:"PENSTOCK_S3_REGION,AWS_REGION,AWS_DEFAULT_REGION" placeholder:"NAME" help:"Region of the bucket."`
	S3Bucket     string `name:"s3-bucket" group:"object store" default:"${bucket}" env:"PENSTOCK_S3_BUCKET" placeholder:"NAME" filled:"" help:"Bucket for the originals (${default})."`
	S3Prefix     string `name:"s3-prefix" group:"object store" env:"PENSTOCK_S3_PREFIX" placeholder:"PREFIX" help:"Prefix for every key."`
	CreateBucket bool   `group:"object store" env:"PENSTOCK_CREATE_BUCKET" help:"Create the bucket, and that of --state, if missing."`

	Milvus         string `group:"vector store" env:"PENSTOCK_MILVUS" placeholder:"HOST:PORT" help:"Milvus server for the chunks. Default: SQLite in the state folder."`
	MilvusUser     string `group:"vector store" env:"PENSTOCK_MILVUS_USER" placeholder:"NAME" help:"User name."`
	MilvusPassword string `group:"vector store" env:"PENSTOCK_MILVUS_PASSWORD" secret:"" placeholder:"SECRET" help:"Password; better set in the environment."`
	MilvusAPIKey   string `name:"milvus-api-key" group:"vector store" env:"PENSTOCK_MILVUS_API_KEY" secret:"" placeholder:"SECRET" help:"API key, for Zilliz Cloud, instead of user and password; better set in the environment."`
	MilvusDatabase string `group:"vector store" env:"PENSTOCK_MILVUS_DATABASE" placeholder:"NAME" help:"Database."`
	Collection     string `group:"vector store" default:"${collection}" env:"PENSTOCK_COLLECTION" placeholder:"NAME" filled:"" help:"Collection; holds the chunks of one model (${default})."`

	LLMBaseURL     string `name:"llm-base-url" group:"model" env:"PENSTOCK_LLM_BASE_URL,OPENAI_BASE_URL" placeholder:"URL" help:"OpenAI-compatible server for embeddings. Default: the built-in model."`
	LLMAPIKey      string `name:"llm-api-key" group:"model" env:"PENSTOCK_LLM_API_KEY,OPENAI_API_KEY" secret:"" placeholder:"SECRET" help:"Its API key; better set in the environment."`
	EmbeddingModel string `group:"model" default:"text-embedding-3-small" env:"PENSTOCK_EMBEDDING_MODEL" placeholder:"NAME" help:"Embedding model on that server (${default})."`
	Dimensions     int    `group:"model" env:"PENSTOCK_DIMENSIONS" placeholder:"N" min:"0" help:"Dimensions to request. Default: the model's own."`

	Enrich       string `group:"enrichment" env:"PENSTOCK_ENRICH" placeholder:"KINDS" values:"title,summary,context" help:"Metadata to add with a chat model, comma-separated: title, summary, context. Default: none."`
	EnrichModel  string `group:"enrichment" env:"PENSTOCK_ENRICH_MODEL" placeholder:"NAME" help:"Chat model for enrichment."`
	EnrichBudget int    `group:"enrichment" env:"PENSTOCK_ENRICH_BUDGET" placeholder:"TOKENS" min:"0" help:"Token limit for enrichment in one run, prompts and answers together. Default: no limit."`
	ChatBaseURL  string `name:"chat-base-url" group:"enrichment" env:"PENSTOCK_CHAT_BASE_URL" placeholder:"URL" help:"OpenAI-compatible server for the chat model. Default: --llm-base-url."`
	ChatAPIKey   string `name:"chat-api-key" group:"enrichment" env:"PENSTOCK_CHAT_API_KEY" secret:"" placeholder:"SECRET" help:"Its API key; better set in the environment. Default: --llm-api-key, if the server is the one in --llm-base-url."`

	Timeout  time.Duration `group:"common" default:"60s" env:"PENSTOCK_TIMEOUT" help:"Time limit for one call to an upstream (${default}). A chat model, which may think for minutes, has 10m."`
	CACert   string        `group:"common" name:"ca-cert" env:"PENSTOCK_CA_CERT" placeholder:"FILE" help:"CA certificates (PEM) to trust instead of the system's."`
	LogLevel string        `group:"common" default:"warn" enum:"debug,info,warn,error" env:"PENSTOCK_LOG_LEVEL" placeholder:"LEVEL" help:"Log level: debug, info, warn or error (${default})."`
	LogJSON  bool          `group:"common" name:"log-json" env:"PENSTOCK_LOG_JSON" help:"Write logs as JSON lines."`
	JSON     bool          `group:"common" name:"json" env:"PENSTOCK_JSON" help:"Write results as JSON, one object per line."`
	Color    string        `group:"common" default:"auto" enum:"auto,always,never" env:"PENSTOCK_COLOR" placeholder:"WHEN" help:"Color results: auto, always or never (${default}: on a terminal, unless NO_COLOR is set or TERM is dumb)."`

	MetricsAddr string `group:"monitoring" env:"PENSTOCK_METRICS_ADDR" placeholder:"HOST:PORT" help:"Serve /metrics for Prometheus while the command runs."`

	Delivery `embed:""`
	Sharing  `embed:""`
}
