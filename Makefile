SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test test-servers check build man services bench fuzz lint fmt vet staticcheck fix tidy race benchmarks fuzz-briefly modules cover

GO ?= go
PKG ?= ./...
TOOL = $(GO) tool -modfile="$(CURDIR)/tools.mod"
FUZZTIME ?= 10s
BENCHTIME ?= 1s
TIMEOUT ?= 20m
TESTFLAGS ?=
APT ?=
RACE ?= $$($(GO) list ./... | grep -v /cmd/)

# The nested modules; $(call in_each,COMMAND) runs a command in each of them.
MODULES := $(shell sed '/^\#/d' scripts/modules)
in_each = for module in $(MODULES); do (cd "$$module" && $(1)) || exit 1; done

# Prints a summary. A skip is a failure unless its reason is one of these.
REPORT = $(GO) run ./scripts/testreport
NO_ROOT = ^a file system of its own needs root$$
NO_SERVER = ^needs |$(NO_ROOT)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## every test that needs nothing but Go (PKG, TESTFLAGS)
	@PENSTOCK_SERVICES=none $(GO) test -json $(TESTFLAGS) -timeout $(TIMEOUT) $(PKG) | $(REPORT) -allow-skip '$(NO_SERVER)'

# With PENSTOCK_REQUIRE_SERVICES=1 no server may be missing. Two packages at a
# time, since each brings up servers of its own.
test-servers: ## every test, with real servers, which it installs into .services first (PKG, TESTFLAGS; APT=1: Debian packages too)
	@reasons='$(NO_SERVER)'; \
	if scripts/install-services $(if $(APT),--apt); then export PENSTOCK_REQUIRE_SERVICES=1; \
	elif [ "$${PENSTOCK_REQUIRE_SERVICES-}" = 1 ] || [ "$${PENSTOCK_SERVICES-}" = none ]; then exit 1; fi; \
	if [ "$${PENSTOCK_REQUIRE_SERVICES-}" = 1 ]; then reasons='$(NO_ROOT)'; fi; \
	$(GO) test -json -p 2 $(TESTFLAGS) -timeout $(TIMEOUT) $(PKG) | $(REPORT) -allow-skip "$$reasons"

check: fmt vet fix staticcheck tidy modules benchmarks fuzz-briefly race ## what must pass before a change goes in

build: ## the command, as bin/ingest
	$(GO) build -trimpath -o bin/ $(wildcard ./cmd/*)

man: build ## the manual pages of the command, in bin/man/man1
	bin/ingest help --man-dir bin/man/man1

services: ## install the servers for tests into .services (APT=1: Debian packages too)
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
	@unformatted=$$($(TOOL) gofumpt -l .); \
	if [ -n "$$unformatted" ]; then printf 'not formatted by gofumpt:\n%s\n' "$$unformatted" >&2; exit 1; fi

vet:
	$(GO) vet $(PKG)

staticcheck:
	$(TOOL) staticcheck $(PKG)

fix: ## go fix: shows what it would modernize
	$(GO) fix -diff $(PKG)
	$(call in_each,$(GO) fix -diff ./...)

tidy: ## go mod tidy: shows what it would change
	$(GO) mod tidy -diff
	$(call in_each,$(GO) mod tidy -diff)

# Not the command's, which start it as a process each time and take minutes under
# the detector; .ci/nightly has them.
race: ## the tests of the packages under the race detector, in random order (RACE)
	PENSTOCK_SERVICES=none $(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(RACE)

# A benchmark that needs a server is skipped unless it is installed.
benchmarks: ## every benchmark, once
	@packages=$$(git grep -l '^func Benchmark' -- '*_test.go' $(MODULES:%=':!%') | xargs -n 1 dirname | sort -u | sed 's|^|./|'); \
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout $(TIMEOUT) $$packages | { grep -vE '^(ok|PASS|goos:|goarch:|cpu:|\?) ?' || true; }

fuzz-briefly:
	scripts/fuzz 3s

modules: ## vet, staticcheck and test the nested modules, their benchmarks once
	$(call in_each,$(GO) vet ./... && $(TOOL) staticcheck ./... && $(GO) test -bench . -benchtime 1x -timeout $(TIMEOUT) ./...)

cover: ## coverage of the tests, as a total
	$(GO) test -timeout $(TIMEOUT) -coverprofile cover.prof $(PKG)
	$(GO) tool cover -func cover.prof | tail -n 1
