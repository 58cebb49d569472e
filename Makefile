# Two commands matter: `make run` to see it work, `make test` to know it works. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
STATE ?= .state
BIN := $(VENV)/bin
export PYTHON
# Containers often set it; here, hundreds of short processes would compile the same modules again and again.
unexport PYTHONDONTWRITEBYTECODE
# Several at once help where the machine has the cores, and one more than cores since tests wait for other processes; a
# single core would only pay for the switching.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); [ $$n -gt 4 ] && n=4; [ $$n -gt 1 ] && echo $$((n + 1)) || echo 0)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# What a test run is given beyond the whole suite, e.g. make test ARGS="-k storage -x"
ARGS ?=

##@ Use it
.PHONY: run
run: setup ## Run the daemon on the local cloud with sample files, until Ctrl-C
	@$(BIN)/ingestd local --state $(STATE) --rules config/rules --samples config/samples

.PHONY: demo
demo: setup ## The same, in a throw-away folder: show the rows and exit
	@$(BIN)/ingestd demo --rules config/rules --samples config/samples

.PHONY: setup
setup: ## Prepare .venv with the ingestd command in it (done by the others when needed)
	@tools/setup $(VENV)

##@ Work on it
.PHONY: test
test: setup ## Everything CI checks: lint, types, layers and all tests
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint types imports try-browser
	@$(MAKE) --no-print-directory pytest

.PHONY: pytest
pytest: setup ## The tests alone (ARGS="-k name -x" to choose)
	@$(PYTEST) $(ARGS)

.PHONY: coverage
coverage: setup ## The tests again, with what they reach (half as slow again)
	@$(PYTEST) --cov --cov-report=term $(ARGS)

.PHONY: lint
lint: setup ## Style: ruff check and ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet || { echo "run: make format"; exit 1; }

.PHONY: types
types: setup ## Types: mypy --strict
	@$(BIN)/mypy

.PHONY: imports
imports: setup ## Layers: import-linter
	@$(BIN)/lint-imports --no-cache >.imports.log 2>&1 || { cat .imports.log; rm -f .imports.log; exit 1; }; tail -n 2 .imports.log; rm -f .imports.log

.PHONY: format
format: setup ## Rewrite the code in the project's style
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: docs
docs: setup ## Rewrite the pages that are made from the code
	@$(BIN)/ingestd settings >.page && mv .page docs/settings.md
	@$(BIN)/python tools/metrics-page >.page && mv .page docs/metrics.md
	@for one in rules settings load; do $(BIN)/ingestd schema $$one >.page && mv .page src/ingestd/schemas/$$one.json || exit 1; done

SEEDS ?= 1000
.PHONY: sim
sim: setup ## Whole deployments with all their troubles, on virtual time, one per seed (SEEDS=100000 for a long run)
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) --workers $(WORKERS)

.PHONY: mutants
mutants: setup ## Take out the guards one at a time: the test that is named for each has to notice (ARGS="lease" to choose)
	@$(BIN)/python -m tests.mutants.run $(ARGS)

.PHONY: bench
bench: setup ## Every benchmark, each ending in one line of JSON (ARGS="localcloud" to choose)
	@$(BIN)/python -m bench $(ARGS)

ORACLE ?= .oracle
.PHONY: oracle
oracle: setup ## Both GoogleSQL front ends beside Google's own analyzer (ARGS="--spark --seed 7"; the first time takes minutes)
	@[ -x $(ORACLE)/bin/python ] || $(BIN)/python -m venv $(ORACLE)
	@$(ORACLE)/bin/python -c 'import zetasql' 2>/dev/null || $(ORACLE)/bin/python -m pip install -q 'zetasql==0.1.5' || \
	  { echo "skipped: the package zetasql, Google's analyzer as WebAssembly, cannot be had here"; exit 0; }; \
	$(ORACLE)/bin/python -c 'import zetasql' 2>/dev/null || exit 0; $(BIN)/python -m tests.googlesql.oracle --python $(ORACLE)/bin/python $(ARGS)

.PHONY: browser
browser: setup ## A Chromium for the console's tests: Debian's with root, else Playwright's own download
	@tools/browser $(VENV)

.PHONY: try-browser
try-browser: setup
	@tools/browser $(VENV) || true

.PHONY: image-test
image-test: setup ## The image, built by buildah and run as each overlay's pod (as root on Debian; the first time takes long)
	@{ command -v buildah && command -v debootstrap; } >/dev/null || apt-get install -y --no-install-recommends buildah debootstrap >/dev/null
	@$(BIN)/python -m pytest -rs tests/e2e/image $(ARGS)

.PHONY: cluster-test
cluster-test: setup ## Every overlay on a real Kubernetes of one node, where root and its programs are (KUBERNETES_BIN=folder)
	@CLUSTER=1 $(BIN)/python -m pytest -x -s tests/cluster $(ARGS)

.PHONY: clean
clean: ## Remove the environment, the local cloud's state and every cache
	@rm -rf $(VENV) $(STATE) $(ORACLE) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "; printf "\n\033[1mingestd\033[0m: files from Cloud Storage into BigQuery\n"} \
	  /^##@ / {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  \033[36mmake %-8s\033[0m %s\n", $$1, $$2} END {print ""}' $(MAKEFILE_LIST)
