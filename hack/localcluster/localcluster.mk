# Targets around the local cluster, for inclusion in the top Makefile.
# NAME= names the cluster, GPUS= pretends GPUs, ARGS= are kubectl's arguments.

LOCALCLUSTER_DIR := $(dir $(lastword $(MAKEFILE_LIST)))
LOCALCLUSTER     := $(LOCALCLUSTER_DIR)localcluster.sh
NAME ?= slurmtide
GPUS ?=
ARGS ?= get nodes,pods --all-namespaces

##@ Local cluster

.PHONY: cluster-up cluster-down cluster-status kubectl localcluster-unit localcluster-integration

cluster-up: ## start the local cluster NAME with GPUS pretended GPUs, or check that it runs
	@$(LOCALCLUSTER) --name $(NAME) up $(if $(GPUS),--gpus $(GPUS))

cluster-down: ## remove the local cluster NAME and all it made
	@$(LOCALCLUSTER) --name $(NAME) down

cluster-status: ## show the local cluster NAME
	@$(LOCALCLUSTER) --name $(NAME) status

kubectl: ## run kubectl ARGS="..." against the local cluster NAME
	@$(LOCALCLUSTER) --name $(NAME) kubectl $(ARGS)

localcluster-unit: ## unit tests of the local cluster's own code
	cd $(LOCALCLUSTER_DIR) && go vet -tags integration ./... && go test -race ./...

localcluster-integration: ## two clusters up side by side, repaired, crashed, and down without a trace
	cd $(LOCALCLUSTER_DIR) && go test -tags integration -count=1 -timeout 20m -run TestLocalCluster -v .
