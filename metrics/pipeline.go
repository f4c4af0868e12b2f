package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Label values of a Pipeline. Others are counted as "other", so that input
// cannot create series.
var (
	results = []string{
		"ingested", "unchanged", "dead_letter", "known_dead_letter", "deferred",
		"skipped", "gone", "would_ingest", "deleted", "other",
	}
	stages = []string{
		"discover", "read", "original", "parse", "chunk", "enrich", "embed", "upsert", "verify",
		"delete", "commit", "other",
	}
)

// Ingest holds the pipeline metrics of this process, on the default Prometheus
// registry.
var Ingest = newPipeline()

// Pipeline counts what a document pipeline does. All its series exist at zero
// from the start, except those about its runs, which exist once they are known:
// RunEnded, Succeeded, Waiting and Upstream. It is safe for concurrent use, and
// a nil *Pipeline counts nothing.
type Pipeline struct {
	documents *prometheus.CounterVec
	chunks    prometheus.Counter
	tokens    prometheus.Counter
	chat      prometheus.Counter
	cache     *prometheus.CounterVec
	batches   prometheus.Histogram
	stages    *prometheus.HistogramVec
	queues    *prometheus.GaugeVec
	runs      *runs
}

// NewPipeline creates a pipeline's metrics on the given registerer.
func NewPipeline(reg prometheus.Registerer) (*Pipeline, error) {
	p := newPipeline()
	return p, reg.Register(p)
}

func newPipeline() *Pipeline {
	p := &Pipeline{
		documents: counters("documents_total", "Documents by result.", "result"),
		chunks:    prometheus.NewCounter(prometheus.CounterOpts{Name: "ingest_chunks_total", Help: "Chunks stored."}),
		tokens: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "ingest_tokens_total",
				Help: "Tokens sent to the embedding model, as counted by the pipeline.",
			}),
		chat: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "ingest_enrichment_tokens_total",
				Help: "Tokens spent on enrichment by the chat model, prompts and answers together.",
			}),
		cache: counters("embedding_cache_lookups_total", "Texts looked up in the cache of embeddings.", "result"),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ingest_embedding_batch_texts", Help: "Texts in a batch sent to the embedding model.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048},
		}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ingest_stage_duration_seconds",
			Help:    "Time that a stage took for one unit of work, including waiting for an upstream.",
			Buckets: prometheus.ExponentialBucketsRange(0.0005, 60, 12),
		}, []string{"stage"}),
		queues: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "ingest_queue_depth", Help: "Units of work waiting for a stage."},
			[]string{"stage"}),
		runs: newRuns(),
	}
	p.zero()
	return p
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ingest_" + name, Help: help}, []string{label})
}

func (p *Pipeline) zero() {
	for _, result := range results {
		p.documents.WithLabelValues(result)
	}
	for _, stage := range stages {
		p.stages.WithLabelValues(stage)
		p.queues.WithLabelValues(stage)
	}
	p.cache.WithLabelValues("hit")
	p.cache.WithLabelValues("miss")
}

func (p *Pipeline) collectors() []prometheus.Collector {
	return append(slices.Clone(p.runs.collectors),
		p.documents, p.chunks, p.tokens, p.chat, p.cache, p.batches, p.stages, p.queues)
}

// Describe implements prometheus.Collector.
func (p *Pipeline) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range p.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (p *Pipeline) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p.collectors() {
		c.Collect(ch)
	}
}

// Document counts a document: ingested, unchanged, dead_letter,
// known_dead_letter, deferred, skipped, gone, would_ingest or deleted.
func (p *Pipeline) Document(result string) {
	if p == nil {
		return
	}
	p.documents.WithLabelValues(known(results, result)).Inc()
	if result == "ingested" {
		p.runs.working()
	}
}

// Chunks counts chunks that were stored.
func (p *Pipeline) Chunks(n int) {
	if p != nil {
		p.chunks.Add(float64(n))
	}
}

// Batch counts one batch of texts, and their tokens, sent to the embedding
// model.
func (p *Pipeline) Batch(texts, tokens int) {
	if p != nil {
		p.batches.Observe(float64(texts))
		p.tokens.Add(float64(tokens))
	}
}

// Chat counts the tokens of one question to the chat model, prompt and answer
// together.
func (p *Pipeline) Chat(tokens int) {
	if p != nil {
		p.chat.Add(float64(tokens))
	}
}

// Cache counts texts looked up in the cache of embeddings.
func (p *Pipeline) Cache(hits, misses int) {
	if p != nil {
		p.cache.WithLabelValues("hit").Add(float64(hits))
		p.cache.WithLabelValues("miss").Add(float64(misses))
	}
}

// Stage records how long a stage took for one unit of work. Stages are
// discover, read, original, parse, chunk, enrich, embed, upsert, verify, delete
// and commit.
func (p *Pipeline) Stage(stage string, took time.Duration) {
	if p != nil {
		p.stages.WithLabelValues(known(stages, stage)).Observe(took.Seconds())
	}
}

// Queue adds delta, which may be negative, to the work waiting for a stage.
func (p *Pipeline) Queue(stage string, delta int) {
	if p != nil {
		p.queues.WithLabelValues(known(stages, stage)).Add(float64(delta))
	}
}

func known(values []string, value string) string {
	if slices.Contains(values, value) {
		return value
	}
	return "other"
}
