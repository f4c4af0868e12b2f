// Package metrics exports every circuit breaker to Prometheus.
//
// Importing it is enough:
//
//	import _ "github.com/penstock-go/penstock/metrics"
//
// registers one collector on the default Prometheus registry, so that
//
//	circuit_breaker_state{upstream="llm"}    0
//	circuit_breaker_state{upstream="milvus"} 0
//	circuit_breaker_state{upstream="s3"}     0
//
// exist from the first scrape on: 0 is closed, 1 half-open, 2 open. Every door
// of this module imports this package, so a breaker that is in use is never
// silent. This is the one place in the module where an import has an effect.
//
// Further metrics are calls by outcome, transitions, probes, seconds in each
// state, the time of the next probe, the consecutive failures, holds, ramp and
// shadow mode of each breaker, durations of calls by operation (ObserveCall),
// and the work of a document pipeline (Pipeline, Ingest). docs/metrics.md lists
// all of them, and how many series there can be.
//
// Nothing is pushed when a breaker changes state; values are read from the
// breakers during a scrape. A breaker whose reset time has passed without
// traffic therefore reads half-open, not the state of its last event.
//
// For a registry of breakers other than resilience.Default, or for a Prometheus
// registry other than the default one, create a collector and register it:
//
//	prometheus.NewRegistry().MustRegister(metrics.NewCollector(breakers))
//
// A job that ends before it is scraped delivers its metrics with Push or
// WriteTextfile.
//
// Label values are breaker names and operation names of the program. They never
// contain a key, an address, a document or the text of an error.
//
// Metric names, label names and the numbers of the states do not change within
// a major version. New metrics may appear.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-go/penstock/resilience"
)

// A breaker must never be silent, and registering a collector is easily
// forgotten: hence the only init of this module.
func init() {
	prometheus.MustRegister(NewCollector(resilience.Default), durations, Ingest)
}

// Handler serves the metrics of the default Prometheus registry in the format
// that the client requests. Mount it at /metrics.
func Handler() http.Handler { return promhttp.Handler() }
