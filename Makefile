# Slurmtide. `make help` lists what there is to make.

SHELL    := /bin/bash
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO       ?= go
LDFLAGS  := -s -w -X main.version=$(VERSION)
PROGRAMS := resume suspend resume-fail start-gate

# So that what was compiled, vetted and linted in one clone need not be in the next.
export GOFLAGS ?= -trimpath

# Where built tools, images and clusters live; outside the tree.
export SLURMTIDE_CACHE ?= $(HOME)/.cache/slurmtide

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## build the programs into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: generate
generate: ## regenerate clients, deep copies and CRDs from the types, the values of the charts, the manual pages, and the list of metrics
	hack/codegen/generate.sh

.PHONY: clean
clean: ## remove bin/ and out/
	rm -rf bin out

##@ Test

.PHONY: test
test: vet lint unit page shells charts alerts simulate localcluster-unit fuzz verify-generated localcluster-integration integration ## what decides: vet, lint, unit tests, the page in a browser, shells, charts, alerts, simulator, fuzz smoke, generated files, integration with both Slurm versions

.PHONY: vet
vet: ## go vet, with every build tag
	$(GO) vet ./...
	$(GO) vet -tags integration ./...
	$(GO) vet -tags integration,load,faults,keda,scale,controlplane,charts,mariadb ./test/... ./powersave/bridge
	$(GO) vet -tags mutants ./powersave/sim
	$(GO) vet -tags browser ./powersave/page
	$(GO) vet -tags promtool ./test/monitoring

.PHONY: lint
lint: ## golangci-lint with .golangci.yml, shellcheck on the scripts
	hack/lint.sh

.PHONY: unit
unit: ## unit tests with the race detector
	hack/gotest.sh -race ./...

.PHONY: page
page: ## the bridge's page in a real Chromium: keyboard, phone, dark, accessibility; pictures in out/page/
	hack/need.sh chromium chromium
	$(GO) test -count=1 -tags browser -run TestBrowser ./powersave/page

.PHONY: shells
shells: ## completion in bash, zsh and fish
	hack/need.sh zsh zsh
	hack/need.sh fish fish
	SLURMTIDE_SHELLS='bash zsh fish' $(GO) test -count=1 -run TestCompletion ./cmd/slurmtide

.PHONY: charts
charts: ## lint and render the Helm charts, and hold what comes out against others' own rules; builds Helm once
	$(GO) test -count=1 -tags charts ./test/charts
	cd test/charts/foreign && $(GO) test -count=1 ./... # what the Prometheus operator and kube-aggregator have to read

.PHONY: alerts
alerts: ## Prometheus's promtool on alerts and dashboards: are they understood, and does each alert fire when it should
	$(GO) test -count=1 -tags promtool ./test/monitoring

.PHONY: simulate
simulate: SCHEDULES ?= 20000
simulate: ## random schedules against the engine (SCHEDULES=20000)
	$(GO) test -count=1 -timeout 0 ./powersave/sim -schedules $(SCHEDULES) -v
	$(GO) test -count=1 -tags mutants -run TestStory ./powersave/sim

.PHONY: soak
soak: SCHEDULES ?= 1000000
soak: ## the same, a million of them (SCHEDULES=1000000)
	$(GO) test -count=1 -timeout 0 ./powersave/sim -schedules $(SCHEDULES) -v

.PHONY: mutants
mutants: ## plant bugs in the engine, and see that the simulator finds each (several minutes)
	$(GO) test -count=1 -timeout 0 -tags mutants -run TestMutants ./powersave/sim -v

.PHONY: fuzz
fuzz: ## every fuzz target for a moment (FUZZTIME=5000x)
	hack/fuzz.sh

.PHONY: verify-generated
verify-generated: ## fail if make generate would change anything
	hack/codegen/generate.sh verify

.PHONY: integration
integration: ## real Slurm 24.11 and 26.05 on a real Kubernetes, in a cluster of its own
	hack/integration.sh

.PHONY: test-faults
test-faults: ## faults, also those that take longer than make test has: the bridge killed at every step, slurmctld, API server, kubelet, slurmrestd and network away, hosts cordoned, pods evicted and preempted, no room, with every Slurm version; make test has the oldest only of some (35 minutes)
	TAGS=integration,faults PARALLEL=6 RUN='TestHostTrouble|TestDynamicHosts|TestOutages|TestKills|TestAway|TestGangs|TestRestarts|TestBootsThatFail|TestTwoBridges|TestHetJobs|TestOfferings|TestRooms|TestDeletedPods|TestLostBoots|TestReconfigureWhileJobsBegin' hack/integration.sh

.PHONY: test-demand
test-demand: ## 200 made-up queues before real slurmctlds of both versions: do the nodes of the estimate do, and would one less (30 minutes)
	QUEUES=200 TAGS=integration,scale RUN=TestDemand hack/integration.sh

.PHONY: test-scale
test-scale: ## what scales by the queue (floors, rolling updates, look-ahead, mode Dynamic, scaler, HPA), with every Slurm version; make test has the newest only
	TAGS=integration,scale RUN='TestFloor|TestRollingUpdate|TestDynamic|TestLookAhead|TestScaler|TestDemand' hack/integration.sh

.PHONY: test-load
test-load: ## 1,000 start gates waiting at once, both Slurm versions
	TAGS=integration,load RUN=TestManyGates hack/integration.sh

.PHONY: e2e-control-plane
e2e-control-plane: ## slurmtide controller makes Slurm clusters of a few objects, both Slurm versions
	TIMEOUT=120m TAGS=integration,controlplane,charts RUN=TestControlPlane hack/integration.sh

.PHONY: e2e-charts
e2e-charts: ## the Helm charts from install to uninstall, under their own rights, and the commands of runbooks and guide before what they make, both Slurm versions
	TAGS=integration,controlplane,charts RUN='TestCharts|TestGuideCommands' hack/integration.sh

.PHONY: e2e-mariadb
e2e-mariadb: ## the real mariadb-operator makes slurmdbd's database, newest Slurm version; builds mariadb-operator once (see hack/mariadb-operator/README.md)
	TAGS=integration,controlplane,mariadb RUN=TestMariaDBOperator SLURM_VERSIONS=$${SLURM_VERSIONS:-26.05} hack/integration.sh

.PHONY: e2e-keda
e2e-keda: ## the real KEDA, then a plain HPA, scale by Slurm's queue; builds KEDA once (see hack/keda/README.md). SLACK=30s lets figures be over their limits on a busy machine
	cd hack/keda && $(GO) test -count=1 ./... # ScaledObjects against KEDA's own types
	NAME=$${NAME:-slurmtide-keda} TAGS=integration,keda RUN=TestKEDA hack/integration.sh
	TAGS=integration,scale RUN=TestScalerExample hack/integration.sh

##@ Benchmarks

.PHONY: bench
bench: build ## measure; results in out/bench.json and a table
	hack/bench/run.sh

.PHONY: bench-check
bench-check: ## compare ratios and counts of five rounds with the committed baseline: none may be more than a fifth worse (BASELINE=1 writes it)
	hack/bench/check.sh

##@ Demo

.PHONY: demo
demo: ## a local cluster with Slurm: jobs from zero and back, watched live
	hack/demo/run.sh

.PHONY: demo-down
demo-down: ## remove what make demo left running
	hack/localcluster/localcluster.sh --name slurmtide-demo down

include hack/localcluster/localcluster.mk
