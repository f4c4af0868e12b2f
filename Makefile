SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help test check build services bench fuzz lint fmt vet staticcheck fix tidy race bench-module cover

GO ?= go
PKG ?= ./...
TOOL = $(GO) tool -modfile=tools.mod
FUZZTIME ?= 10s
BENCHTIME ?= 1s
TIMEOUT ?= 20m
TESTFLAGS ?=

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## install the servers that the tests need, run every test
	@if scripts/install-services; then export PENSTOCK_REQUIRE_SERVICES=1; \
	elif [ "$$PENSTOCK_REQUIRE_SERVICES" = 1 ]; then exit 1; \
	else echo "make test: the tests that need what is missing are skipped"; fi; \
	$(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) $(PKG)

check: fmt vet fix staticcheck tidy race bench-module ## what must pass before a change goes in

build: ## the command, as bin/ingest
	$(GO) build -trimpath -o bin/ $(wildcard ./cmd/*)

services: ## install the servers for tests into .services
	scripts/install-services

bench: ## benchmarks (PKG, BENCHTIME)
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKG)
	@if [ -f bench/go.mod ]; then cd bench && $(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...; fi

fuzz: ## each fuzz target for a while (FUZZTIME)
	scripts/fuzz $(FUZZTIME)

lint: ## golangci-lint; its first build takes minutes
	$(TOOL) golangci-lint run

fmt: ## gofumpt: lists what is not formatted
	@test -z "$$($(TOOL) gofumpt -l . | tee /dev/stderr)"

vet:
	$(GO) vet $(PKG)

staticcheck:
	$(TOOL) staticcheck $(PKG)

fix: ## go fix: shows what it would modernize
	$(GO) fix -diff $(PKG)

tidy: ## go mod tidy: shows what it would change
	$(GO) mod tidy -diff
	@if [ -f bench/go.mod ]; then cd bench && $(GO) mod tidy -diff; fi

race:
	$(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(PKG)

bench-module:
	@if [ -f bench/go.mod ]; then cd bench && $(GO) vet ./... && $(GO) test ./...; fi

cover: ## coverage of the tests, as a total
	$(GO) test -timeout $(TIMEOUT) -coverprofile cover.prof $(PKG)
	$(GO) tool cover -func cover.prof | tail -n 1
