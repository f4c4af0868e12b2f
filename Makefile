SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test test-servers check build services bench fuzz lint fmt vet staticcheck fix tidy race benchmarks fuzz-briefly modules cover

GO ?= go
PKG ?= ./...
TOOL = $(GO) tool -modfile="$(CURDIR)/tools.mod"
FUZZTIME ?= 10s
BENCHTIME ?= 1s
TIMEOUT ?= 20m
TESTFLAGS ?=
APT ?=

# The nested modules; $(call in_each,COMMAND) runs a command in each of them.
MODULES := $(shell sed '/^\#/d' scripts/modules)
in_each = for module in $(MODULES); do (cd "$$module" && $(1)) || exit 1; done

# Reasons to skip a test that are about the machine, and no fault.
MACHINE = root (can )?(read|write)s? |running as root|runs only as |a file system of its own needs root
REPORT = $(GO) run ./scripts/testreport

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## every test that needs nothing but Go
	@PENSTOCK_SERVICES=none $(GO) test -json $(TESTFLAGS) -timeout $(TIMEOUT) $(PKG) | $(REPORT) -allow-skip '^needs |$(MACHINE)'

# Two packages at a time, since each brings up servers of its own.
test-servers: ## every test, with real servers, which it installs into .services first (APT=1: Debian packages too)
	@if scripts/install-services $(if $(APT),--apt); then export PENSTOCK_REQUIRE_SERVICES=1; \
	elif [ "$${PENSTOCK_REQUIRE_SERVICES-}" = 1 ]; then exit 1; fi; \
	$(GO) test -json -p 2 $(TESTFLAGS) -timeout $(TIMEOUT) $(PKG) | $(REPORT) -allow-skip '^needs |$(MACHINE)'

check: fmt vet fix staticcheck tidy modules benchmarks fuzz-briefly race ## what must pass before a change goes in

build: ## the command, as bin/ingest
	$(GO) build -trimpath -o bin/ $(wildcard ./cmd/*)

services: ## install the servers for tests into .services
	scripts/install-services $(if $(APT),--apt)

bench: ## benchmarks (PKG, BENCHTIME)
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKG)
	$(call in_each,$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...)

fuzz: ## each fuzz target for a while (FUZZTIME)
	scripts/fuzz $(FUZZTIME)

lint: ## golangci-lint; its first build takes minutes
	$(TOOL) golangci-lint run
	$(call in_each,$(TOOL) golangci-lint run)

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
	$(call in_each,$(GO) mod tidy -diff)

race: ## the tests of make test under the race detector, in random order
	PENSTOCK_SERVICES=none $(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(PKG)

# Those with real servers are skipped where there are none.
benchmarks: ## every benchmark, once
	@packages=$$(git grep -l '^func Benchmark' -- '*_test.go' $(MODULES:%=':!%') | xargs -n 1 dirname | sort -u | sed 's|^|./|'); \
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout $(TIMEOUT) $$packages | { grep -E '^(Benchmark|FAIL|---|panic)' || true; }

fuzz-briefly:
	scripts/fuzz 3s

modules: ## vet, staticcheck and test the nested modules, their benchmarks once
	$(call in_each,$(GO) vet ./... && $(TOOL) staticcheck ./... && $(GO) test -bench . -benchtime 1x -timeout $(TIMEOUT) ./...)

cover: ## coverage of the tests, as a total
	$(GO) test -timeout $(TIMEOUT) -coverprofile cover.prof $(PKG)
	$(GO) tool cover -func cover.prof | tail -n 1
