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
DOCS := .make/docs
FUZZ := .make/fuzz

hash = $(shell cat $(1) 2>/dev/null | cksum | cut -d' ' -f1)
UV_STAMP := .make/uv/.requirements-$(call hash,requirements-uv.lock)
VENV_STAMP := $(VENV)/.created
PIP_STAMP := $(VENV)/.requirements-$(call hash,requirements.lock)
DEV_STAMP := $(VENV)/.dev-$(call hash,requirements-dev.lock)
PACKAGE_STAMP := $(VENV)/.package-$(call hash,pyproject.toml)
KUBERNETES_STAMP := $(KUBERNETES)/.requirements-$(call hash,requirements-kubernetes.lock)
DOCS_STAMP := $(DOCS)/.requirements-$(call hash,requirements-docs.lock)
FUZZ_STAMP := $(FUZZ)/.requirements-$(call hash,requirements-fuzz.lock)
PULSAR_STAMP := $(PULSAR_CLIENT)/.requirements-$(call hash,requirements-pulsar.lock)
JARS_STAMP := $(JARS)/.jars-$(call hash,conf/ivy.xml conf/jars.sha256 conf/checkpoints.scala)
ARCHIVE_STAMP := $(VENV)/.archive-$(call hash,requirements.lock conf/ivy.xml conf/jars.sha256 lb_stream/job/submit.py)
STEPS := $(UV_STAMP) $(VENV_STAMP) $(PIP_STAMP) $(PACKAGE_STAMP) $(JARS_STAMP)

# uv reads no settings of pip: an index of one's own that pip knows is passed on. Nothing is built with unlocked tools.
UV := UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$(.make/uv/bin/python -m pip config get global.index-url 2>/dev/null)}}" \
  UV_INDEX="$${UV_INDEX:-$$PIP_EXTRA_INDEX_URL}" SSL_CERT_FILE="$${SSL_CERT_FILE:-$$PIP_CERT}" UV_PYTHON_DOWNLOADS=never .make/uv/bin/uv
INSTALL := $(UV) pip install --python $(BIN)/python --no-build-isolation
COMPILE := $(UV) pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
  --no-emit-find-links --no-emit-package lb-stream
PYTEST := $(BIN)/python -m pytest

export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
unexport SPARK_HOME # another Spark on this machine must not be taken for the one in .venv

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev steps packages java check test test-all test-long test-pulsar test-hostile test-secure test-cluster fuzz audit-deps check-kubernetes check-chart image manifest differential demo bench bench-core bench-stream bench-start bench-store bench-fleet bench-policies bench-plan bench-console house pictures site seed-checklist release release-check lock clean
.NOTPARALLEL:

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 20

setup: java ## install what the job, the demo and the console need into .venv and .jars (can be interrupted and resumed)
	@$(MAKE) --no-print-directory steps $(ARCHIVE_STAMP)
	@echo "Set up. Next: make demo, or make test."

setup-dev: java ## make setup, and what tests and benchmarks need
	@$(MAKE) --no-print-directory steps $(DEV_STAMP) $(ARCHIVE_STAMP)

check: setup-dev ## lint and layout (ruff), who imports whom (import-linter), types (mypy)
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
	$(PYTEST) -q -n 2 --dist loadfile --hypothesis-profile=whole -m "not long" tests/properties $(ARGS)
	$(PYTEST) -q -n 2 --dist loadgroup -m "(jvm or e2e or slow) and not (loop or long)" $(ARGS)

test-long: setup-dev $(FUZZ_STAMP) ## the tests that take too long for every change: hours, one of them a soak with kills (LB_SOAK_MINUTES, else 60)
	LB_SOAK_MINUTES=$(or $(LB_SOAK_MINUTES),60) $(PYTEST) -m long $(ARGS)

test-pulsar: setup-dev ## the whole loop beside a real cluster of Pulsar 5.0.1, which new clusters are installed with, by the scripts in PULSAR_CLUSTER_DIR (an hour and more; needs Maven, Java 21 or newer; PULSAR_VERSION=4.2.4 or 4.0.7: Java 17)
	@if [ ! -f "$(PULSAR_CLUSTER_DIR)/cluster.sh" ]; then \
	  echo "test-pulsar: skipped, there is no cluster.sh in $(or $(PULSAR_CLUSTER_DIR),a folder beside this one): give its folder, make test-pulsar PULSAR_CLUSTER_DIR=FOLDER"; \
	else $(MAKE) --no-print-directory $(PULSAR_STAMP) && \
	  PULSAR_CLUSTER_DIR="$(abspath $(PULSAR_CLUSTER_DIR))" PULSAR_VERSION="$(PULSAR_VERSION)" PYTHONPATH=$(PULSAR_CLIENT) $(PYTEST) -q -m long tests/pulsar $(ARGS); fi

test-hostile: setup-dev ## everything hostile against a live job while all is killed that can be (a quarter of an hour); last line JSON
	$(PYTEST) -q -m long tests/e2e/test_hostile.py $(ARGS)

test-secure: setup-dev ## on a real broker with ACLs: each right taken in turn, the whole loop by SCRAM, mutual TLS and tokens (half an hour); last line JSON
	$(PYTEST) -q -m long tests/e2e/secure $(ARGS)

test-cluster: setup-dev ## a Spark cluster on machines made of namespaces while all of it is killed (needs root's rights); last line JSON
	$(PYTEST) -q -m long tests/e2e/cluster $(ARGS)

fuzz: setup-dev $(FUZZ_STAMP) ## coverage-guided fuzzing of every parser of outside bytes, a minute each (TARGET=NAME for one, SECONDS=600, ARGS=--list names them); last line JSON
	nice $(BIN)/python -m tests.fuzz $(TARGET) --seconds $(or $(SECONDS),60) $(ARGS)

audit-deps: setup-dev ## hashes, licences and known vulnerabilities of all that is locked (ARGS="--database FOLDER" of an OSV export, --require-database); last line JSON
	$(BIN)/python -m tests.release.audit $(ARGS)

check-kubernetes: $(KUBERNETES_STAMP) ## the manifests of conf/deploy against the published schemas of Kubernetes (ARGS="--version 1.34" for an older one)
	PYTHONPATH=$(KUBERNETES) $(BIN)/python -m kubernetes_validate --strict conf/deploy/*.yaml $(ARGS)

check-chart: setup-dev ## the Helm chart: lint, templates, refusals, and real API servers of two Kubernetes releases (needs Go and openssl; half an hour at first, of which all but two minutes builds helm, kube-apiserver and etcd into .make)
	nice $(BIN)/python -m tests.chart.programs
	$(PYTEST) -q -m long tests/chart $(ARGS)

image: setup-dev ## both images, built and run as the chart runs them (needs docker or podman; where no registry is reached: ARGS=--make-base, which needs mmdebstrap; a quarter of an hour); last line JSON
	nice $(BIN)/python -m tests.image.build $(ARGS)

manifest: setup-dev ## conf/deploy/kubernetes.yaml from the Helm chart (needs Go, which builds helm into .make)
	nice $(BIN)/python -m tests.chart.programs helm
	$(BIN)/python -m tests.chart.manifest

differential: setup-dev ## generated cases to the core and to Pulsar's own classes, by the command REFERENCE (ARGS="--cases 2000 --seed 1"; of another release: ARGS="--profile pulsar-5.0", and its classes behind REFERENCE); last line JSON
	@command -v "$(firstword $(REFERENCE))" >/dev/null || { echo "differential: no command $(REFERENCE): give it, make differential REFERENCE=COMMAND" >&2; exit 2; }
	$(BIN)/python -m tests.conformance.differential $(REFERENCE) $(ARGS)

demo: ## from nothing to a balanced cluster (ARGS="--shedder AvgShedder" and the like)
	@if $(MAKE) -q steps >/dev/null 2>&1; then LB_SETUP_SECONDS=0; $(MAKE) --no-print-directory java || exit; \
	else begin=$$(date +%s); $(MAKE) --no-print-directory java steps || exit; LB_SETUP_SECONDS=$$(($$(date +%s) - begin)); fi; \
	export LB_SETUP_SECONDS; exec $(BIN)/lbctl demo $(ARGS)

bench: setup-dev ## side-by-side timings (ARGS=name for one of them); the last line is one JSON object
	$(BIN)/python -m tests.bench $(ARGS)

# With the memory settings of Spark's workers in conf/spark-defaults.conf.
bench-core: setup-dev ## the core's strategies on three sizes of cluster (ARGS="--sizes 1000x100000", --reference: beside Pulsar's own classes); last line JSON
	$(if $(REFERENCE),REFERENCE="$(REFERENCE)") MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=268435456 $(BIN)/python -m tests.bench.core $(ARGS)

bench-policies: setup-dev ## every shedder with every placement in each scenario of the folder SCENARIOS (a quarter of an hour); last line JSON
	$(BIN)/python -m tests.bench.policies $(SCENARIOS) $(ARGS)

bench-plan: setup-dev ## LeastMoves' plans beside the fewest moves there are; or, INSTANCES=FOLDER, the machine reassignment challenge; last line JSON
	$(BIN)/python -m tests.bench.plan $(INSTANCES) $(ARGS)

bench-stream: setup-dev ## the whole stream beside what Spark alone does, three quarters of an hour or so (ARGS="--bundles 20000 --runs 3" for a glance); last line JSON
	$(BIN)/python -m tests.bench.stream $(ARGS)

bench-start: setup-dev ## where the time of a start and of a restart goes, beside an empty Spark session, five minutes or so (ARGS="--runs 3 --code FOLDER" beside another checkout); last line JSON
	$(BIN)/python -m tests.bench.start $(ARGS)

bench-store: setup-dev ## requests of a batch to an object store, by kind and by who asks (ARGS="--batches 30" for a glance); last line JSON
	$(BIN)/python -m tests.bench.store $(ARGS)

bench-fleet: setup-dev ## 1,000 to 30,000 clusters of mixed sizes on two cores and on one, up to an hour or so (ARGS="--clusters 20 60 --runs 2" for a glance); last line JSON
	$(BIN)/python -m tests.bench.fleet $(ARGS)

bench-console: setup-dev ## viewers of the console beside a job that writes (ARGS="--viewers 200 --minutes 10 --brokers 1000 --bundles 100000"); last line JSON
	$(BIN)/python -m tests.bench.console $(ARGS)

house: $(PACKAGE_STAMP) ## what the project asks of its own code and pages, counted (ARGS="--env base=FOLDER" adds an environment's size); last line JSON
	$(BIN)/python -m docs.tools.house $(ARGS)

pictures: setup-dev ## the pictures of README.md, of a demo that runs (minutes; needs Chromium; ARGS=--recording: only that of the terminal)
	$(BIN)/python -m docs.tools.pictures $(ARGS)

site: $(DOCS_STAMP) ## the pages as a site with search, in build/site/VERSION; a broken link is an error (ARGS="--out FOLDER")
	$(DOCS)/bin/python -m docs.tools.site $(ARGS)

seed-checklist: $(PACKAGE_STAMP) ## every system that Pulsar's documentation names, and the tests that show it (ARGS=--json)
	@$(BIN)/python -m tests.checklist $(ARGS)

release: setup-dev ## what a release consists of, of the commit that is checked out, into dist: wheel, sdist, Helm chart, schemas, bill of materials, notes, SHA-256 sums (needs Go, which builds helm); last line JSON
	$(BIN)/python -m tests.release $(ARGS)

release-check: setup-dev ## try what make release has put into dist, outside of the clone: sums, chart, wheel, demo, the tutorial's stages (a few minutes); last line JSON
	$(BIN)/python -m tests.release.trial $(ARGS)

# requirements-dev.lock comes first. The others are parts of it: its pins are where they begin.
lock: java $(PACKAGE_STAMP) ## rewrite requirements*.lock from pyproject.toml, and conf/jars.sha256 from conf/ivy.xml
	$(COMPILE) --extra all --group build --group dev -o requirements-dev.lock
	cp requirements-dev.lock requirements.lock
	$(COMPILE) --extra job --extra console --extra notify --extra otel --group build -o requirements.lock
	cp requirements-dev.lock requirements-base.lock
	$(COMPILE) --extra otel -o requirements-base.lock
	for extra in pulsar kubernetes; do \
	  sed -n "s/^$$extra = \[\(.*\)\]/\1/p" pyproject.toml | tr -d '"' | $(subst pyproject.toml,-,$(COMPILE)) -o requirements-$$extra.lock || exit; \
	done
	for group in uv docs fuzz; do $(subst pyproject.toml,,$(COMPILE)) --group $$group -o requirements-$$group.lock || exit; done
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

packages: $(PIP_STAMP) # alone, for an image
	@:

$(UV_STAMP):
	@echo "1/4 uv, which installs the rest (60 MB in .make)"
	@rm -rf .make/uv
	@$(PYTHON) -m venv .make/uv
	@.make/uv/bin/python -m pip --disable-pip-version-check install -q --require-hashes --only-binary :all: -r requirements-uv.lock
	@touch $@

$(VENV_STAMP): | $(UV_STAMP)
	@$(UV) venv -q --allow-existing --python $(PYTHON) $(VENV)
	@touch $@

# The build tools first, by hash too: PySpark comes as source. Bytecode at once, as pip writes it: whoever may not write there starts slower.
$(PIP_STAMP): | $(VENV_STAMP)
	@echo "2/4 Python packages in $(VENV) (640 MB to fetch, most of it PySpark; 1.1 GB installed)"
	@for tool in setuptools wheel packaging; do sed -n "/^$$tool==/,/[^\\\\]\$$/p" requirements.lock; done >$(VENV)/build.lock
	@$(INSTALL) -q --require-hashes --no-deps -r $(VENV)/build.lock
	@$(INSTALL) --compile-bytecode --require-hashes -r requirements.lock
	@rm -f $(VENV)/.requirements-*; touch $@

$(PACKAGE_STAMP): | $(PIP_STAMP)
	@echo "3/4 this package and lbctl"
	@$(INSTALL) -q --no-deps -e .
	@rm -f $(VENV)/.package-*; touch $@

$(DEV_STAMP): | $(PACKAGE_STAMP)
	@echo "packages for tests and benchmarks (120 MB to fetch, 400 MB installed)"
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@rm -f $(VENV)/.dev-*; touch $@

$(FUZZ_STAMP): | $(PIP_STAMP)
	@rm -rf $(FUZZ)
	@$(INSTALL) -q --require-hashes --no-deps --only-binary :all: --target $(FUZZ) -r requirements-fuzz.lock
	@touch $@

# Beside the environment, not in it: only test-pulsar has it on its path.
$(PULSAR_STAMP): | $(PIP_STAMP)
	@rm -rf $(PULSAR_CLIENT)
	@$(INSTALL) -q --require-hashes --no-deps --target $(PULSAR_CLIENT) -r requirements-pulsar.lock
	@touch $@

$(KUBERNETES_STAMP): | $(PIP_STAMP)
	@rm -rf $(KUBERNETES)
	@$(INSTALL) -q --require-hashes --no-deps --target $(KUBERNETES) -r requirements-kubernetes.lock
	@touch $@

# An environment of its own: the site needs nothing of the project's.
$(DOCS_STAMP): | $(UV_STAMP)
	@rm -rf $(DOCS)
	@$(UV) venv -q --python $(PYTHON) $(DOCS)
	@$(UV) pip install -q --python $(DOCS)/bin/python --require-hashes --only-binary :all: -r requirements-docs.lock
	@touch $@

$(JARS_STAMP): | $(PACKAGE_STAMP)
	@echo "4/4 jars of Spark's connectors and of Kafka (about 70 MB)"
	@$(BIN)/python -m lb_stream.kit.fetch_jars
	@rm -f $(JARS)/.jars-*; touch $@

$(ARCHIVE_STAMP): | $(JARS_STAMP)
	@echo "archive of Java's classes, with which jobs start in two thirds of the time (190 MB, a minute)"
	@$(BIN)/python -m lb_stream.kit.record_classes
	@rm -f $(VENV)/.archive-*; touch $@
