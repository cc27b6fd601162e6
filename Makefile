# `make help` lists the targets. Needs GNU make, a POSIX shell, Python 3.11 or newer and Java; the rest is installed below
# .venv and .jars in this folder. Every step leaves a stamp named after a hash of what it depends on: an interrupted set-up goes
# on where it stopped, a finished one takes no time, a changed lock file runs its step again.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
JARS := $(or $(LB_JARS_DIR),.jars)
# Not part of this repository; found in a folder beside the clone, or named by whoever has them elsewhere.
PULSAR_CLUSTER_DIR ?= $(patsubst %/,%,$(dir $(firstword $(wildcard ../*/pulsar-cluster/cluster.sh))))
REFERENCE ?= $(firstword $(wildcard ../*/reference/run.sh))
SCENARIOS ?= $(firstword $(wildcard ../*/scenarios/public) tests/data/scenarios)
PULSAR_CLIENT := .make/pulsar-client
KUBERNETES := .make/kubernetes

hash = $(shell cat $(1) 2>/dev/null | cksum | cut -d' ' -f1)
VENV_STAMP := $(VENV)/.created
PIP_STAMP := $(VENV)/.requirements-$(call hash,requirements.lock)
PACKAGE_STAMP := $(VENV)/.package-$(call hash,pyproject.toml)
KUBERNETES_STAMP := $(KUBERNETES)/.requirements-$(call hash,requirements-kubernetes.lock)
PULSAR_STAMP := $(PULSAR_CLIENT)/.requirements-$(call hash,requirements-pulsar.lock)
JARS_STAMP := $(JARS)/.jars-$(call hash,conf/ivy.xml conf/jars.sha256 conf/checkpoints.scala)
ARCHIVE_STAMP := $(VENV)/.archive-$(call hash,requirements.lock conf/ivy.xml conf/jars.sha256)
STEPS := $(VENV_STAMP) $(PIP_STAMP) $(PACKAGE_STAMP) $(JARS_STAMP) $(ARCHIVE_STAMP)

PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest

export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
unexport SPARK_HOME # another Spark on this machine must not be taken for the one in .venv

.DEFAULT_GOAL := help
.PHONY: help setup steps java check test test-all test-long test-pulsar test-hostile test-secure test-cluster check-kubernetes differential demo bench bench-core bench-stream bench-store bench-fleet bench-policies bench-plan bench-console house pictures seed-checklist lock clean
.NOTPARALLEL:

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 20

setup: java ## install everything into .venv and .jars (can be interrupted and resumed)
	@$(MAKE) --no-print-directory steps
	@echo "Set up. Next: make demo, or make test."

check: setup ## lint and layout (ruff), who imports whom (import-linter), types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# Tests of one file stay in one process, so that what the file shares is made once.
test: check ## check, the tests without a JVM, a few whole loops with Spark and Kafka: ten minutes on two cores
	$(PYTEST) -q -n 2 --dist loadfile -m "not (jvm or e2e or slow or long)" $(ARGS)
	$(PYTEST) -q -m loop tests/e2e tests/pulsar tests/spark $(ARGS)

# One process has all tests with Kafka, the other one all that need only Spark, and slow ones (tests/conftest.py).
test-all: check ## what make test leaves out: all tests with Spark and Kafka, slow ones, more generated examples: half an hour
	$(PYTEST) -q -n 2 --dist loadfile --hypothesis-profile=whole tests/properties $(ARGS)
	$(PYTEST) -q -n 2 --dist loadgroup -m "(jvm or e2e or slow) and not (loop or long)" $(ARGS)

test-long: setup ## the tests that take too long for every change: hours, one of them a soak with kills (LB_SOAK_MINUTES, else 60)
	LB_SOAK_MINUTES=$(or $(LB_SOAK_MINUTES),60) $(PYTEST) -m long $(ARGS)

test-pulsar: setup ## the whole loop beside a real Pulsar cluster, started by the scripts in PULSAR_CLUSTER_DIR (minutes; needs Maven)
	@if [ ! -f "$(PULSAR_CLUSTER_DIR)/cluster.sh" ]; then \
	  echo "test-pulsar: skipped, there is no cluster.sh in $(or $(PULSAR_CLUSTER_DIR),a folder beside this one): give its folder, make test-pulsar PULSAR_CLUSTER_DIR=FOLDER"; \
	else $(MAKE) --no-print-directory $(PULSAR_STAMP) && \
	  PULSAR_CLUSTER_DIR="$(abspath $(PULSAR_CLUSTER_DIR))" PYTHONPATH=$(PULSAR_CLIENT) $(PYTEST) -q -m long tests/pulsar $(ARGS); fi

test-hostile: setup ## everything hostile against a live job while all is killed that can be (a quarter of an hour); last line JSON
	$(PYTEST) -q -m long tests/e2e/test_hostile.py $(ARGS)

test-secure: setup ## on a real broker with ACLs: each right taken in turn, the whole loop by SCRAM, mutual TLS and tokens (half an hour); last line JSON
	$(PYTEST) -q -m long tests/e2e/secure $(ARGS)

test-cluster: setup ## a Spark cluster on machines made of namespaces while all of it is killed (needs root's rights); last line JSON
	$(PYTEST) -q -m long tests/e2e/cluster $(ARGS)

check-kubernetes: $(KUBERNETES_STAMP) ## conf/deploy/kubernetes.yaml against the published schemas of Kubernetes (ARGS="--version 1.34" for an older one)
	PYTHONPATH=$(KUBERNETES) $(BIN)/python -m kubernetes_validate --strict conf/deploy/kubernetes.yaml $(ARGS)

differential: setup ## generated cases to the core and to Pulsar's own classes, by the command REFERENCE (ARGS="--cases 2000 --seed 1"); last line JSON
	@command -v "$(firstword $(REFERENCE))" >/dev/null || { echo "differential: no command $(REFERENCE): give it, make differential REFERENCE=COMMAND" >&2; exit 2; }
	$(BIN)/python -m tests.conformance.differential $(REFERENCE) $(ARGS)

demo: ## from nothing to a balanced cluster (ARGS="--shedder AvgShedder" and the like)
	@if $(MAKE) -q steps >/dev/null 2>&1; then LB_SETUP_SECONDS=0; $(MAKE) --no-print-directory java || exit; \
	else begin=$$(date +%s); $(MAKE) --no-print-directory setup || exit; LB_SETUP_SECONDS=$$(($$(date +%s) - begin)); fi; \
	export LB_SETUP_SECONDS; exec $(BIN)/lbctl demo $(ARGS)

bench: setup ## side-by-side timings (ARGS=name for one of them); the last line is one JSON object
	$(BIN)/python -m tests.bench $(ARGS)

# With the memory settings of Spark's workers in conf/spark-defaults.conf.
bench-core: setup ## the core's strategies on three sizes of cluster (ARGS="--sizes 1000x100000", --reference: beside Pulsar's own classes); last line JSON
	$(if $(REFERENCE),REFERENCE="$(REFERENCE)") MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=268435456 $(BIN)/python -m tests.bench.core $(ARGS)

bench-policies: setup ## every shedder with every placement in each scenario of the folder SCENARIOS (a quarter of an hour); last line JSON
	$(BIN)/python -m tests.bench.policies $(SCENARIOS) $(ARGS)

bench-plan: setup ## LeastMoves' plans beside the fewest moves there are; or, INSTANCES=FOLDER, the machine reassignment challenge; last line JSON
	$(BIN)/python -m tests.bench.plan $(INSTANCES) $(ARGS)

bench-stream: setup ## the whole stream beside what Spark alone does, half an hour or so (ARGS="--bundles 20000 --runs 3" for a glance); last line JSON
	$(BIN)/python -m tests.bench.stream $(ARGS)

bench-store: setup ## requests of a batch to an object store, by kind and by who asks (ARGS="--batches 30" for a glance); last line JSON
	$(BIN)/python -m tests.bench.store $(ARGS)

bench-fleet: setup ## 1,000 to 30,000 clusters of mixed sizes on two cores and on one, up to an hour or so (ARGS="--clusters 20 60 --runs 2" for a glance); last line JSON
	$(BIN)/python -m tests.bench.fleet $(ARGS)

bench-console: setup ## viewers of the console beside a job that writes (ARGS="--viewers 200 --minutes 10 --brokers 1000 --bundles 100000"); last line JSON
	$(BIN)/python -m tests.bench.console $(ARGS)

house: $(PACKAGE_STAMP) ## what the project asks of its own code and pages, counted (ARGS="--env base=FOLDER" adds an environment's size); last line JSON
	$(BIN)/python -m docs.tools.house $(ARGS)

pictures: setup ## the pictures of README.md, of a demo that runs (minutes; needs Chromium)
	$(BIN)/python -m docs.tools.pictures

seed-checklist: $(PACKAGE_STAMP) ## every system that Pulsar's documentation names, and the tests that show it (ARGS=--json)
	@$(BIN)/python -m tests.checklist $(ARGS)

# uv only writes the lock file, so it stays out of the locked environment.
lock: java $(PACKAGE_STAMP) ## rewrite requirements*.lock from pyproject.toml, and conf/jars.sha256 from conf/ivy.xml
	@test -x .make/uv/bin/uv || { $(PYTHON) -m venv .make/uv && .make/uv/bin/python -m pip install -q uv; }
	.make/uv/bin/uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements.lock
	sed -n 's/^pulsar = \["\(.*\)"\]/\1/p' pyproject.toml | .make/uv/bin/uv pip compile -q - --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements-pulsar.lock
	sed -n 's/^kubernetes = \["\(.*\)"\]/\1/p' pyproject.toml | .make/uv/bin/uv pip compile -q - --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements-kubernetes.lock
	$(BIN)/python -m lb_stream.kit.fetch_jars --relock

clean: ## remove what set-up and runs have made: .venv, .jars, .lb (the demo's broker and tables), caches
	@test ! -x $(BIN)/lbctl || $(BIN)/lbctl kafka stop || true
	rm -rf $(VENV) .jars .make .lb *.egg-info build spark-warehouse .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# --- the steps of set-up ---

java:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed, '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1): install one, or make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -I lb_stream/io/local/java.py >/dev/null

steps: $(STEPS)
	@:

$(VENV_STAMP):
	@echo "1/5 Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The build tools first, by hash too: PySpark comes as source, and is built with them instead of with whatever is newest.
$(PIP_STAMP): | $(VENV_STAMP)
	@echo "2/5 Python packages (about 600 MB, most of it PySpark; minutes at the first time)"
	@for tool in setuptools wheel packaging; do sed -n "/^$$tool==/,/[^\\\\]\$$/p" requirements.lock; done >$(VENV)/build.lock
	@$(PIP) install -q --require-hashes --no-deps -r $(VENV)/build.lock
	@$(PIP) install --require-hashes --no-build-isolation -r requirements.lock
	@rm -f $(VENV)/.requirements-*; touch $@

$(PACKAGE_STAMP): | $(PIP_STAMP)
	@echo "3/5 this package and lbctl"
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.package-*; touch $@

# Beside the environment, not in it: only test-pulsar has it on its path.
$(PULSAR_STAMP): | $(PIP_STAMP)
	@rm -rf $(PULSAR_CLIENT)
	@$(PIP) install -q --require-hashes --no-deps --target $(PULSAR_CLIENT) -r requirements-pulsar.lock
	@touch $@

$(KUBERNETES_STAMP): | $(PIP_STAMP)
	@rm -rf $(KUBERNETES)
	@$(PIP) install -q --require-hashes --no-deps --target $(KUBERNETES) -r requirements-kubernetes.lock
	@touch $@

$(JARS_STAMP): | $(PACKAGE_STAMP)
	@echo "4/5 jars of Spark's connectors and of Kafka (about 70 MB)"
	@$(BIN)/python -m lb_stream.kit.fetch_jars
	@rm -f $(JARS)/.jars-*; touch $@

$(ARCHIVE_STAMP): | $(JARS_STAMP)
	@echo "5/5 archive of Java's classes, with which jobs start in two thirds of the time (190 MB, a minute)"
	@$(BIN)/python -m lb_stream.kit.record_classes
	@rm -f $(VENV)/.archive-*; touch $@
