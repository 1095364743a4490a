# Every target says what it is for; `make` prints them.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# Which Envoy and which Redis the demo and the tests use; see scripts/get-envoy.sh and scripts/get-redis.sh.
export ENVOY_BIN ENVOY_VERSION REDIS_BIN

# Everything built or downloaded lies in .cache, except for Go's own caches and bin/.
CACHE := .cache
export STATICCHECK_CACHE := $(CURDIR)/$(CACHE)/staticcheck

# A count and not a duration: the fuzzing engine of Go before 1.27 may fail at the end of a duration (golang/go#75804).
FUZZTIME ?= 10000x
BENCHCOUNT ?= 10
TESTRUN := python3 scripts/testrun.py
SDK_TESTS := ^Test(SDK|Llama)

# Expanded where used, so that `make help` runs no go command.
unit_packages = $(shell go list ./... | grep -v '/e2e')
packages_with = $(sort $(addprefix ./,$(dir $(shell grep -rlE --include='*_test.go' $(1) cmd e2e envoy extproc internal policy 2>/dev/null))))

.PHONY: help build envoy demo test full check unit race fuzz-smoke bench bench-smoke lint golden e2e e2e-matrix sdk soak cover clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/brownout
	@go build -trimpath -buildvcs=true -o bin/brownout ./cmd/brownout

envoy: ## print the path of the Envoy in use, fetching it if need be
	@scripts/get-envoy.sh

demo: build ## show the whole thing: stub, brownout and a real Envoy on this machine (DEMO_FLAGS=--keep leaves it running)
	@envoy=$$(scripts/get-envoy.sh) && exec ./bin/brownout demo --envoy "$$envoy" $(DEMO_FLAGS)

test: ## what CI runs: check, race, fuzz-smoke, bench-smoke, e2e, sdk
	@MAKE='$(MAKE)' $(TESTRUN) steps check race fuzz-smoke bench-smoke e2e sdk

full: ## test, then e2e on every pinned Envoy, then soak
	@MAKE='$(MAKE)' $(TESTRUN) steps check race fuzz-smoke bench-smoke e2e-matrix sdk soak

check: lint ## format, vet, staticcheck, a tidy go.mod, and generation that changes nothing
	@go mod tidy -diff
	@$(TESTRUN) unchanged $(MAKE) --no-print-directory golden

lint: $(CACHE)/bin/staticcheck ## gofmt, go vet and staticcheck
	@bad=$$(find . -name '*.go' -not -path './$(CACHE)/*' -exec gofmt -l {} +) && \
	if [ -n "$$bad" ]; then echo "gofmt -w needed for:"; echo "$$bad"; exit 1; fi
	@go vet ./...
	@$(CACHE)/bin/staticcheck ./...

unit: envoy-ready redis-ready ## unit tests without the race detector
	@$(TESTRUN) go unit $(unit_packages)

race: envoy-ready redis-ready ## unit tests with the race detector
	@$(TESTRUN) go race -race $(unit_packages)

fuzz-smoke: ## every fuzz target for FUZZTIME (10000x: inputs)
	@$(TESTRUN) fuzz $(FUZZTIME) $(call packages_with,'^func Fuzz')

bench-smoke: envoy-ready redis-ready ## every benchmark once
	@$(TESTRUN) go bench-smoke -run '^$$' -bench . -benchtime 1x $(call packages_with,'^func Benchmark')

bench: $(CACHE)/bin/benchstat ## benchmarks BENCHCOUNT (10) times, summarized; a former run is kept for comparison
	@mkdir -p $(CACHE)/bench
	@if [ -f $(CACHE)/bench/new.txt ]; then mv $(CACHE)/bench/new.txt $(CACHE)/bench/old.txt; fi
	@go test -run '^$$' -bench . -benchmem -count $(BENCHCOUNT) $(call packages_with,'^func Benchmark') > $(CACHE)/bench/new.txt || { cat $(CACHE)/bench/new.txt; exit 1; }
	@$(CACHE)/bin/benchstat $$(ls $(CACHE)/bench/old.txt 2>/dev/null) $(CACHE)/bench/new.txt

golden: ## rewrite the golden files and generated docs; read the diff
	@for p in $(call packages_with,'flag.Bool."update"'); do go test -count=1 $$p -update || exit 1; done
	@for p in $(call packages_with,'cockroachdb/datadriven"'); do go test -count=1 $$p -rewrite || exit 1; done

e2e: envoy-ready redis-ready ## end-to-end tests on a real Envoy (ENVOY_VERSION=X.Y.Z chooses another)
	@echo "Envoy: $$(scripts/get-envoy.sh)"
	@$(TESTRUN) go e2e -count=1 -timeout 15m -skip '$(SDK_TESTS)' ./e2e/...

e2e-matrix: ## end-to-end tests on every pinned Envoy
	@for v in $$(scripts/get-envoy.sh --versions); do $(MAKE) --no-print-directory e2e ENVOY_BIN= ENVOY_VERSION=$$v || exit 1; done

sdk: envoy-ready ## real SDKs of three languages and a real llama.cpp server (SDK_FLAGS=-update-sdk rewrites docs/sdk.md)
	@$(TESTRUN) go sdk -count=1 -timeout 10m -run '$(SDK_TESTS)' ./e2e $(SDK_FLAGS)

soak: envoy-ready redis-ready ## the long runs: tests of e2e named TestSoak…, at full length
	@BROWNOUT_SOAK=1 $(TESTRUN) go soak -count=1 -timeout 60m -run '^TestSoak' ./e2e/...

cover: envoy-ready redis-ready ## coverage of the unit tests by package and in total
	@mkdir -p $(CACHE)
	@go test -coverprofile=$(CACHE)/coverage.out $(unit_packages)
	@go tool cover -func=$(CACHE)/coverage.out | tail -n 1

clean: ## remove everything built or downloaded
	@rm -rf $(CACHE) bin

.PHONY: envoy-ready redis-ready
envoy-ready:
	@scripts/get-envoy.sh >/dev/null

redis-ready:
	@scripts/get-redis.sh >/dev/null

$(CACHE)/bin/staticcheck $(CACHE)/bin/benchstat: internal/tools/go.mod internal/tools/go.sum
	@mkdir -p $(CACHE)/bin
	@cd internal/tools && go build -o ../../$(CACHE)/bin/ honnef.co/go/tools/cmd/staticcheck golang.org/x/perf/cmd/benchstat
	@touch $(CACHE)/bin/staticcheck $(CACHE)/bin/benchstat
