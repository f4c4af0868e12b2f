package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/internal/cafile"
	"github.com/penstock-go/penstock/internal/secret"
	"github.com/penstock-go/penstock/llm"
	"github.com/penstock-go/penstock/llm/staticmodel"
	"github.com/penstock-go/penstock/metrics"
	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline"
	"github.com/penstock-go/penstock/pipeline/source"
	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

// awsItself is the value of --s3-endpoint that means AWS's own endpoint.
const awsItself = "aws"

// vectorsFile is the embedded vector store, in the state folder.
const vectorsFile = "vectors.db"

// declareOperations makes the durations of the command's calls available from
// the first scrape.
func declareOperations() {
	metrics.DeclareOperations(resilience.LLM, "create_embeddings", "create_chat_completion")
	metrics.DeclareOperations(resilience.S3, "head_bucket", "put_object", "get_object", "copy_object",
		"list_objects_v2", "delete_objects", "create_bucket")
	metrics.DeclareOperations(resilience.Milvus, "has_collection", "describe_collection", "query", "upsert",
		"delete", "search")
}

// upstreams configures the three upstreams of a pipeline, each embedded unless
// its flag names a real one, and the name of the resulting destination.
func (a *app) upstreams(ctx context.Context) (pipeline.Config, error) {
	config, err := a.clients(ctx)
	if err == nil {
		err = a.openStores(&config)
	}
	return config, err
}

// clients configures the upstreams but for the embedded stores. It calls
// nothing and makes no folder.
func (a *app) clients(ctx context.Context) (pipeline.Config, error) {
	declareOperations()
	s := a.settings
	config := pipeline.Config{
		Bucket: s.S3Bucket, Prefix: s.S3Prefix, Collection: s.Collection, CreateBucket: s.CreateBucket,
		Dimensions: s.Dimensions, Logger: a.log, Places: a.places(), Destination: a.destination(),
	}
	err := cmp.Or(s.checkAddresses(), a.checkCACert())
	if err == nil {
		err = a.openModel(&config)
	}
	if err == nil && s.S3Endpoint != "" {
		config.Objects, err = a.newS3(ctx)
	}
	if err == nil && s.Milvus != "" {
		err = a.connectVectors(ctx, &config)
	}
	return config, err
}

// openStores opens the embedded stores. It makes their folders.
func (a *app) openStores(config *pipeline.Config) error {
	if a.settings.S3Endpoint == "" {
		store, err := filestore.Open(filepath.Join(a.folder(), "objects"))
		if err != nil {
			return fmt.Errorf("embedded object store: %w", err)
		}
		config.Objects, config.CreateBucket = store, true
	}
	if a.settings.Milvus != "" {
		return nil
	}
	if err := a.makeFolder(); err != nil {
		return err
	}
	return a.openVectors(config)
}

func (a *app) openVectors(config *pipeline.Config) error {
	store, err := sqlitestore.Open(filepath.Join(a.folder(), vectorsFile))
	if err != nil {
		return fmt.Errorf("embedded vector store: %w", err)
	}
	a.later(store.Close)
	config.Vectors = store
	return nil
}

// destination names where documents go. It contains no secrets.
func (a *app) destination() string {
	s := a.settings
	objects := "embedded"
	if s.S3Endpoint != "" {
		objects = strings.TrimSuffix(maskUserinfo(s.S3Endpoint), "/")
	}
	vectors := "embedded"
	if s.Milvus != "" {
		vectors = strings.TrimSuffix(maskUserinfo(s.Milvus), "/") + "/" + s.MilvusDatabase
	}
	return strings.Join(
		[]string{
			"objects=" + objects, "bucket=" + s.S3Bucket, "prefix=" + s.S3Prefix, "vectors=" + vectors,
			"collection=" + s.Collection,
		}, " ")
}

// newS3 creates a client for the configured endpoint, or for AWS if none is
// set.
func (a *app) newS3(ctx context.Context) (*s3.Client, error) {
	s := a.settings
	endpoint := s.S3Endpoint
	if endpoint == awsItself {
		endpoint = ""
	}
	client, err := objectstore.NewClient(ctx, objectstore.Config{
		Endpoint: endpoint, Region: s.S3Region, CAFile: s.CACert,
		CallTimeout: s.Timeout, HeaderTimeout: s.Timeout, IdleTimeout: s.Timeout,
	})
	if err != nil {
		return nil, configuration(unusableS3(err))
	}
	return client, nil
}

// unusableS3 says by its flag which setting of the object store is wrong.
func unusableS3(err error) error {
	const field, flag = "Config.Region", "--s3-region"
	if invalid, ok := errors.AsType[*objectstore.InputError](err); ok && strings.Contains(invalid.Problem, field) {
		return fmt.Errorf("object store: %s", strings.ReplaceAll(invalid.Problem, field, flag))
	}
	return fmt.Errorf("--s3-endpoint: %w", err)
}

// sourceObjects is the object store of s3:// inputs.
func (a *app) sourceObjects(ctx context.Context) (source.ObjectReader, error) { return a.newS3(ctx) }

// checkMilvus refuses two ways to sign in: the server would get one of them.
func (s *Settings) checkMilvus() error {
	if s.MilvusAPIKey != "" && s.MilvusUser+s.MilvusPassword != "" {
		return errors.New("--milvus-api-key cannot be combined with --milvus-user and --milvus-password; " +
			"'ingest config' shows where each comes from")
	}
	return nil
}

func (a *app) connectVectors(ctx context.Context, config *pipeline.Config) error {
	s := a.settings
	client, err := vectorstore.NewClient(ctx, vectorstore.Config{
		Address: s.Milvus, Username: s.MilvusUser, Password: s.MilvusPassword, APIKey: s.MilvusAPIKey,
		Database: s.MilvusDatabase, CAFile: s.CACert, CallTimeout: s.Timeout,
	})
	if err != nil {
		return configuration(fmt.Errorf("--milvus: %w", err))
	}
	a.later(client.Close)
	config.Vectors = client
	return nil
}

func (a *app) openModel(config *pipeline.Config) error {
	s := a.settings
	static := staticmodel.New()
	config.Chunks.Count, config.Tokenizer = static.Tokens, staticmodel.Name
	if s.LLMBaseURL == "" {
		config.Embeddings, config.Model, config.Dimensions = static, staticmodel.Name, 0
		return nil
	}
	key, err := secret.Trim("--llm-api-key", s.LLMAPIKey)
	if err != nil {
		return configuration(err)
	}
	client, err := llm.NewClient(
		llm.Config{BaseURL: s.LLMBaseURL, APIKey: key, Timeout: s.Timeout, CAFile: s.CACert})
	if err != nil {
		return configuration(fmt.Errorf("--llm-base-url: %w", err))
	}
	config.Embeddings, config.Model, config.KeepVectors = client, s.EmbeddingModel, true
	return nil
}

// sayRedirected tells people whose embeddings go to a server because of a
// variable that they may have set for another program.
func (a *app) sayRedirected() {
	const variable = "OPENAI_BASE_URL"
	for _, s := range a.settingsInForce() {
		if s.Name == "llm-base-url" && s.Value != "" && s.Source == "environment, "+variable {
			a.log.Warn(variable+" redirects the embeddings from the built-in model to a server; --llm-base-url= returns "+
				"to the built-in model, and PENSTOCK_LLM_BASE_URL instead of this variable silences this line",
				"address", publicAddress(a.settings.LLMBaseURL), "model", a.settings.EmbeddingModel)
		}
	}
}

// checkCACert checks the file of --ca-cert, which all clients read, so that the
// error names the flag.
func (a *app) checkCACert() error {
	if _, err := cafile.Pool(a.settings.CACert); err != nil {
		return configuration(fmt.Errorf("--ca-cert: %w", err))
	}
	return nil
}
