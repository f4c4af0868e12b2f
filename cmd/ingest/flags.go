package main

import "time"

const (
	defaultState      = ".penstock"
	defaultCollection = "documents"
	defaultBucket     = "penstock"
)

// cli is the command line.
type cli struct {
	Settings `embed:""`

	Run     runCmd     `cmd:"" default:"withargs" help:"Ingest files, folders, globs, addresses and buckets (the default verb)."`
	Search  searchCmd  `cmd:"" help:"Find the nearest chunks to a question."`
	Retry   retryCmd   `cmd:"" help:"Ingest only what failed or was deferred."`
	Delete  deleteCmd  `cmd:"" help:"Delete documents: their chunks, originals and journal entries."`
	Verify  verifyCmd  `cmd:"" help:"Compare the journal with the vector store: missing, stale, orphaned."`
	Parse   parseCmd   `cmd:"" help:"Show what a file is read as."`
	Chunk   chunkCmd   `cmd:"" help:"Show what chunks a file is cut into."`
	Version versionCmd `cmd:"" help:"Show which build this is."`
	Status  statusCmd  `cmd:"" help:"Show what the journal holds: totals, the last run, dead letters."`
	Serve   serveCmd   `cmd:"" help:"Ingest again and again, and serve a status page, /metrics, /healthz and /readyz."`
	Doctor  doctorCmd  `cmd:"" help:"Reach each upstream once, say what is wrong and how to mend it."`
	Config  configCmd  `cmd:"" help:"Show what is in force and where it came from, secrets masked."`
}

// Settings are the flags of every verb. Each can come from the command line,
// the environment or the configuration file, in this order.
type Settings struct {
	ConfigFile string        `name:"config" placeholder:"FILE" env:"PENSTOCK_CONFIG" help:"Configuration file (YAML). Default: penstock.yaml, where there is one."`
	State      string        `default:"${state}" env:"PENSTOCK_STATE" placeholder:"DIR" help:"Folder of the journal and the embedded stores, on a local disk (${default}). With s3://bucket/prefix the journal is kept there, and the embedded stores in ${state}."`
	StateLease time.Duration `default:"60s" env:"PENSTOCK_STATE_LEASE" help:"How long a --state in s3:// stays held after a run that was killed (${default})."`

	S3Endpoint   string `name:"s3-endpoint" group:"object store" env:"PENSTOCK_S3_ENDPOINT,AWS_ENDPOINT_URL_S3" placeholder:"URL" help:"Keep originals there; 'aws' for AWS itself. Default: files in the state folder."`
	S3Region     string `name:"s3-region" group:"object store" env:"PENSTOCK_S3_REGION,AWS_REGION,AWS_DEFAULT_REGION" placeholder:"NAME" help:"Region of the bucket."`
	S3Bucket     string `name:"s3-bucket" group:"object store" default:"${bucket}" env:"PENSTOCK_S3_BUCKET" placeholder:"NAME" help:"Bucket for the originals (${default})."`
	S3Prefix     string `name:"s3-prefix" group:"object store" env:"PENSTOCK_S3_PREFIX" placeholder:"PREFIX" help:"Put before each key."`
	CreateBucket bool   `group:"object store" env:"PENSTOCK_CREATE_BUCKET" help:"Make the bucket when it is missing, and that of --state."`

	Milvus         string `group:"vector store" env:"PENSTOCK_MILVUS" placeholder:"HOST:PORT" help:"Keep chunks there. Default: SQLite in the state folder."`
	MilvusUser     string `group:"vector store" env:"PENSTOCK_MILVUS_USER" placeholder:"NAME" help:"User name."`
	MilvusPassword string `group:"vector store" env:"PENSTOCK_MILVUS_PASSWORD" secret:"" placeholder:"SECRET" help:"Password; better in the environment."`
	MilvusDatabase string `group:"vector store" env:"PENSTOCK_MILVUS_DATABASE" placeholder:"NAME" help:"Database."`
	Collection     string `group:"vector store" default:"${collection}" env:"PENSTOCK_COLLECTION" placeholder:"NAME" help:"Collection for the chunks of one model (${default})."`

	LLMBaseURL     string `name:"llm-base-url" group:"model" env:"PENSTOCK_LLM_BASE_URL,OPENAI_BASE_URL" placeholder:"URL" help:"OpenAI-compatible server for embeddings. Default: the model inside the binary."`
	LLMAPIKey      string `name:"llm-api-key" group:"model" env:"PENSTOCK_LLM_API_KEY,OPENAI_API_KEY" secret:"" placeholder:"SECRET" help:"Its key; better in the environment."`
	EmbeddingModel string `group:"model" default:"text-embedding-3-small" env:"PENSTOCK_EMBEDDING_MODEL" placeholder:"NAME" help:"Embedding model of the server (${default})."`
	Dimensions     int    `group:"model" env:"PENSTOCK_DIMENSIONS" placeholder:"N" help:"Dimensions to ask for. Default: what the model gives."`

	Enrich       string `group:"enrichment" env:"PENSTOCK_ENRICH" placeholder:"KINDS" help:"Have a chat model add to documents: title, summary, context, commas between. Default: nothing."`
	EnrichModel  string `group:"enrichment" env:"PENSTOCK_ENRICH_MODEL" placeholder:"NAME" help:"Chat model for that."`
	EnrichBudget int    `group:"enrichment" env:"PENSTOCK_ENRICH_BUDGET" placeholder:"TOKENS" help:"Most tokens, prompts and answers together, that a run may spend on it. Default: no limit."`
	ChatBaseURL  string `name:"chat-base-url" group:"enrichment" env:"PENSTOCK_CHAT_BASE_URL" placeholder:"URL" help:"OpenAI-compatible server of the chat model. Default: --llm-base-url."`
	ChatAPIKey   string `name:"chat-api-key" group:"enrichment" env:"PENSTOCK_CHAT_API_KEY" secret:"" placeholder:"SECRET" help:"Its key; better in the environment. Default: --llm-api-key, if the server is that of --llm-base-url."`

	Timeout  time.Duration `default:"60s" env:"PENSTOCK_TIMEOUT" help:"Longest time for one call to an upstream (${default})."`
	CACert   string        `name:"ca-cert" env:"PENSTOCK_CA_CERT" placeholder:"FILE" help:"Certificates (PEM) to trust instead of the system's."`
	LogLevel string        `default:"warn" enum:"debug,info,warn,error" env:"PENSTOCK_LOG_LEVEL" help:"debug, info, warn or error (${default})."`
	LogJSON  bool          `name:"log-json" env:"PENSTOCK_LOG_JSON" help:"Logs as JSON lines."`
	JSON     bool          `name:"json" env:"PENSTOCK_JSON" help:"Results as JSON: one object a line."`

	MetricsAddr string `env:"PENSTOCK_METRICS_ADDR" placeholder:"HOST:PORT" help:"Serve /metrics for Prometheus while the command runs."`

	Delivery `embed:""`
}
