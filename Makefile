# All tasks of developers and of CI are targets in this file. `make` lists them.
SHELL       := /bin/bash
GO          ?= go
KUBERNETES  := v1.36.3
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BIN         ?= bin
VERSION     ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null)
BUILD       := build -trimpath -buildvcs=false
ALLINONE_LD  = -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) \
               -X github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli.Release=$(VERSION)
KUBE_LD     := -s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
               -X $(p).gitVersion=$(KUBERNETES) -X $(p).gitMajor=1 -X $(p).gitMinor=36 -X $(p).gitTreeState=clean)
# All commands of Go have the same flags, so that they share their compiled packages.
export CGO_ENABLED ?= 0
export GOFLAGS := -trimpath $(GOFLAGS)
.DEFAULT_GOAL := help
.PHONY: help build allinone cloudconform kube konnectivity aws machine csi up down reset test e2e e2e-clusters e2e-packages e2e-upstream e2e-storage fuzz console-test screenshots nightly conformance compose compose-test vm vm-test release release-test cross lint prose vuln pin generate generated bench bench-volumes check clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: allinone kube ## build bin/allinone and bin/kube

allinone: ## build the cloud and its CLI, and bin/allinone-credprovider (the first build takes about 4 minutes on two cores)
	@mkdir -p $(BIN)
	@hack/with-progress $(BIN)/allinone $(GO) $(BUILD) -ldflags '$(ALLINONE_LD)' -o $(BIN)/ ./cmd/allinone
	@CGO_ENABLED=0 $(GO) $(BUILD) -ldflags '-s -w' -o $(BIN)/ ./cmd/allinone-credprovider

cloudconform: ## build bin/cloudconform, which checks cloud controller managers
	@mkdir -p $(BIN)
	@hack/with-progress $(BIN)/cloudconform $(GO) $(BUILD) -ldflags '$(ALLINONE_LD)' -o $(BIN)/ ./cmd/cloudconform

kube: ## build bin/kube: Kubernetes, etcd and kwok in one file
	@[ -x $(BIN)/kube ] || echo "building $(BIN)/kube from source, once: 4 to 8 minutes on 2 cores"
	@mkdir -p $(BIN)
	@hack/with-progress $(BIN)/kube $(GO) -C kube $(BUILD) -ldflags '$(KUBE_LD)' -o $(abspath $(BIN))/kube .

konnectivity: ## build Kubernetes' network proxy and its clients, for tests and benchmarks
	@hack/with-progress bin/konnectivity $(GO) -C netproxy/interop build -o ../../bin/konnectivity .
	@hack/with-progress bin/konnectivity-0.37 $(GO) -C netproxy/interop build -modfile=go37.mod -o ../../bin/konnectivity-0.37 .

aws: ## build AWS's cloud controller manager and credential provider, for tests
	@hack/with-progress "AWS's programs" $(GO) -C hack/aws build -trimpath -ldflags '-s -w' -o ../../bin/ tool

machine: ## build bin/machine: the components of real nodes (see docs/real-nodes.md)
	@hack/with-progress $(BIN)/machine hack/build-machine $(BIN)/machine

csi: ## build bin/csi: Kubernetes' CSI sidecars in one file (see docs/howto/volumes.md)
	@hack/with-progress $(BIN)/csi hack/build-csi $(BIN)/csi

up: allinone ## start a cluster on a simulated cloud; Ctrl-C stops it
	@[ -x bin/kube ] || echo "bin/allinone is ready: while Kubernetes compiles, try bin/allinone cloudsim in another terminal"
	@$(MAKE) --no-print-directory kube
	@bin/allinone up $(ARGS)

down: allinone ## stop a cluster that runs in the background
	@bin/allinone down $(ARGS)

reset: allinone ## stop the cluster and delete its data
	@bin/allinone reset $(ARGS)

test: ## run the quick tests with the race detector (about ten minutes on two cores)
	CGO_ENABLED=1 $(GO) test -race -shuffle=on -short -timeout 20m ./...

e2e: e2e-clusters e2e-packages ## run the long tests, with real clusters and killed processes (make -j2 e2e is faster)

# Most of these tests wait for a program, so more of them run at once than the machine has processors.
e2e-clusters e2e-packages: build konnectivity aws csi $(if $(filter 0,$(shell id -u)),machine)

e2e-clusters:
	@rm -rf bin/figures
	$(GO) test -count=1 -parallel 4 -timeout 40m ./test/e2e
	@tail -n +1 bin/figures/*

e2e-packages:
	$(GO) test -count=1 -p 3 -timeout 40m ./lab/... ./netproxy/... ./csidriver/... ./ccm ./conform/... ./cloudsim/engine ./cloudsim/client ./cloudsim/dataplane/disks ./cloudsim/dialect/... ./credprovider ./cmd/allinone ./internal/loop ./test/restfuzz
	$(GO) test -count=1 -short -tags portable ./cloudsim/dataplane
	$(GO) -C csidriver/sanity test -count=1 -timeout 10m .
	$(GO) -C cloudsim/dialect/aws/interop test -trimpath -count=1 -timeout 10m .
	$(GO) -C kube test -trimpath -count=1 ./credprovider
	$(GO) -C kube/machine/shell test -count=1 ./...

fuzz: ## run each fuzz target for a few seconds
	hack/fuzz 2s

console-test: build ## test the web console in a real Chromium, also with a cluster (see CONTRIBUTING.md)
	$(GO) -C test/console test -count=1 -timeout 20m .

screenshots: build ## write the pictures of the console in docs/howto (needs chromium)
	CONSOLE_SCREENSHOTS=$(abspath docs/howto) $(GO) -C test/console test -count=1 -timeout 10m -run TestScreenshots .

nightly: build aws machine csi vm ## run the tests that take hours and print a table of results (as root)
	hack/nightly

compose: ## build bin/compose: Docker Compose, for make compose-test COMPOSE=bin/compose
	@hack/with-progress bin/compose $(GO) -C hack/compose build -trimpath -o ../../bin/compose \
		-ldflags "-s -w -X github.com/docker/compose/v5/internal.Version=$$($(GO) -C hack/compose list -m -f '{{.Version}}' github.com/docker/compose/v5)" \
		github.com/docker/compose/v5/cmd

compose-test: build machine csi ## start docker-compose.yaml with bin/, test it, and check that nothing remains
	@hack/compose-test

bin/e2e/e2e.test: kube/e2e/e2e_test.go kube/go.mod hack/build-e2e | machine
	@hack/with-progress bin/e2e hack/build-e2e bin/e2e

e2e-upstream: build machine bin/e2e/e2e.test ## run Kubernetes' load balancer tests on real nodes
	hack/e2e-upstream '\[Feature:LoadBalancer\]'

e2e-storage: build machine csi bin/e2e/e2e.test ## run Kubernetes' storage tests with the CSI driver on real nodes
	hack/e2e-storage

conformance: build machine bin/e2e/e2e.test ## run selected conformance tests of Kubernetes on real nodes
	hack/e2e-upstream "$$(hack/conformance)"

bin/vm/root.img: hack/build-vm
	@hack/with-progress bin/vm hack/build-vm bin/vm

vm: bin/vm/root.img ## build bin/vm: a virtual machine from Debian's packages (needs root and debootstrap)

vm-test: build machine csi vm ## run tests that need cgroup v2, SELinux and all capabilities in a virtual machine
	hack/vm-test

release: ## build the archives, images and checksums of a release into bin/release (VERSION=v1.2.3)
	@VERSION=$(VERSION) hack/release/build $(ARGS)

release-test: build ## start a lab from the archive for this machine, and compare two builds of allinone
	@VERSION=$(VERSION) hack/release/test $(ARGS)

cross: ## check that allinone compiles for macOS, Windows and linux/arm64
	$(GO) run ./hack/typecheck darwin/arm64,windows/amd64,linux/arm64 ./cmd/allinone ./cmd/allinone-credprovider

lint: cross ## run the static checks
	$(GO) vet ./... && $(GO) -C kube vet -trimpath . ./credprovider && $(GO) -C kube/dns vet . && $(GO) -C kube/machine vet ./pause && $(GO) -C kube/machine/shell vet ./...
	$(GO) -C hack/release vet ./... && $(GO) -C csidriver/sanity vet . && $(GO) -C csidriver/sidecars vet . && $(GO) -C netproxy/interop vet . && $(GO) -C cloudsim/dialect/aws/interop vet -trimpath . && $(GO) -C test/console vet .
	$(GO) run $(GOLANGCI) run ./...
	@$(MAKE) --no-print-directory prose

bin/vale: hack/vale/go.mod hack/vale/go.sum
	@CGO_ENABLED=1 hack/with-progress bin/vale nice $(GO) -C hack/vale build -o ../../bin/vale github.com/vale-cli/vale/v3/cmd/vale

prose: bin/vale ## check the language of documents and Go comments (see hack/vale)
	@hack/prose

vuln: ## check the called code for known vulnerabilities
	@hack/vuln ./...

pin: ## write the digests of the images in deploy/unpinned.txt (needs skopeo and the registries)
	hack/pin

generate: ## generate docs/reference
	$(GO) generate ./...

generated: generate ## fail if docs/reference is stale
	@git diff --exit-code -- docs/reference || { echo "docs/reference is stale: run make generate and commit"; exit 1; }

bench: build konnectivity ## run all benchmarks (see docs/performance.md)
	$(GO) test -run '^$$' -bench . -benchtime 2s ./cloudsim/... && $(GO) test -run '^$$' -bench . -benchtime 1x ./ccm && $(GO) test -run '^$$' -bench . -benchtime 3x -timeout 20m ./test/bench && $(GO) test -run '^$$' -bench . -benchtime 60x ./credprovider
	$(GO) -C test/console test -run '^$$' -bench . -benchtime 1x -timeout 20m .

check: test lint vuln generated e2e e2e-upstream ## run all CI checks except fuzz, console-test, compose-test, vm-test and release-test (as root)

clean: ## delete bin
	rm -rf bin

bench: bench-volumes
bench-volumes: ## run only the benchmarks of volumes (as root)
	$(GO) test -run '^$$' -bench Volume -benchtime 9x -timeout 20m ./csidriver
