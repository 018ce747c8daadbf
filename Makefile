.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := libs services tests examples

.PHONY: help demo test helm-test check lint types imports unit lab down bench docs charts contracts fmt
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-9s\033[0m %s\n", $$1, $$2}'

demo: $(VENV)/.done ## Start real Kubernetes, Slurm and Lockstep, and play a short tour (first run about 11 minutes)
	@$(BIN)/python -m tests.lab.demo

test: $(VENV)/.done ## Run everything: lint, types, import contracts, unit, contract, integration and lab tests
	@$(BIN)/python -m tests.all

check: lint types imports unit ## What is fast; before each commit

lint: $(VENV)/.done ## ruff: rules and format
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES)

helm-test: $(VENV)/.done ## Install the chart in the lab: the main job in pods, upgrade, failover, uninstall
	@$(BIN)/python -m tests.all chart

types: $(VENV)/.done ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/.done ## import-linter: layers, and what decisions may import
	@$(BIN)/lint-imports --no-cache

unit: $(VENV)/.done ## Unit and contract tests; no cluster needed
	@$(BIN)/python -m pytest -q tests/unit tests/contract

lab: $(VENV)/.done ## Start the lab (real Kubernetes, Slurm, NATS), or attach to it
	@$(BIN)/python -m tests.lab up

down: $(VENV)/.done ## End the lab and all that runs on it; leaves nothing behind but the cache and the logs
	@$(BIN)/python -m tests.lab down

bench: $(VENV)/.done ## Measure on 1,000 real slurmds; writes docs/bench/
	@$(BIN)/python -m tests.bench
	@$(BIN)/python -m tests.bench stream

docs: $(VENV)/.done ## Write the page of metrics and the dashboards anew
	@$(BIN)/python -m tests.observability

charts: $(VENV)/.done ## Write what the Helm chart takes from the source anew: files, rights, schema, reference
	@$(BIN)/python -m tests.deploy

contracts: $(VENV)/.done ## Write proto/ and the tables of docs/events.md anew, after a change in libs/lockstep/contracts
	@$(BIN)/python -m lockstep.contracts.asyncapi proto docs/events.md

fmt: $(VENV)/.done ## Format and mend what can be mended
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format --quiet $(SOURCES)

$(VENV)/.done: requirements/dev.txt pyproject.toml
	@echo "Setting up the virtual environment from the lock file"
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || apt-get install -qq -y python3-venv >/dev/null
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
