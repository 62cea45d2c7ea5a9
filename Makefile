# The verbs of this project, in one place.  `make help` lists those of every day, `make help-all` all of them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help help-all setup demo check test lint traced tested format generate docs clean prove bench trace cluster wheel soak models scale trickle bit-flips backups observability console-browser rest-fuzz cluster-failover cluster-rolling cluster-upgrade cluster-components bookkeeper-kills lake-kills mirror-kills search-kills runbooks interop-processes training edge interop-registry interop-security spark-cluster spark-kills spark-matrix lake-readers security-scan deploy-check release wheel-matrix newcomer

# Tests start hundreds of processes: without bytecode each of them compiles Sarit again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
STAMP := .venv/.set-up
# Prints the groups (##@) and verbs (##) of this file; `upto` ends at the group of that name.
LIST := awk -F ':.*\#\# ' -v upto="$(1)" '/^\#\#@ / { if (upto && substr($$0, 5) == upto) exit; print substr($$0, 5) } \
	/^[a-z-]+:.*\#\# / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

help:
	@$(call LIST,The simulation)
	@echo "make help-all lists what takes longer: more of the simulation, clusters, Spark, security, releases"

help-all:
	@$(call LIST)

##@ Every day

$(STAMP): pyproject.toml uv.lock tools/setup.sh
	@tools/setup.sh
	@touch $@

setup: $(STAMP)  ## install everything into .venv (needs Python >= 3.11; Java >= 17 for Spark alone)

demo: setup  ## the main job: flights -> stream -> PySpark -> stream -> table
	@$(BIN)/python examples/flights/demo.py

# Not in check: the tests that start a process, a node or a Java, and those that compute for more than a second.
check: setup  ## what is cheap to know, in a minute: lint, and the tests that start nothing; runs before each push
	@$(MAKE) --no-print-directory lint
	@$(BIN)/pytest -n 2 --dist loadfile --cost=pure

# Beside lint, which uses one processor: mypy has no cache on a fresh clone.
test: setup  ## what CI runs: lint, types, imports, and every test
	@$(MAKE) --no-print-directory --jobs=2 lint traced tested

tested: tests/__pycache__
	@$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

# The tests of a fresh clone are compiled once: four workers would each do all of it.
tests/__pycache__:
	@$(BIN)/pytest --collect-only -qq > /dev/null || true  # the run itself says what is wrong

lint: setup  ## ruff, formatting, mypy --strict, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.generate_blocking --check
	@$(BIN)/python -m tools.grafana_dashboard --check

traced: setup
	@$(BIN)/python -m tools.trace --check --repeats 2

format: setup  ## put the code in order: ruff's fixes and formatting
	@$(BIN)/ruff check --fix --unsafe-fixes --quiet . || true
	@$(BIN)/ruff format .

generate: setup  ## write again what is made from code: the blocking client, tables of documents, the dashboard
	@$(BIN)/python -m tools.generate_blocking
	@$(BIN)/python -m tools.generate_options
	@$(BIN)/python -m tools.spark_options
	@$(BIN)/python -m tools.metrics_page
	@$(BIN)/python -m tools.limits_page
	@$(BIN)/python -m tools.cli_page
	@$(BIN)/python -m tools.access_page
	@$(BIN)/python -m tools.architecture_page
	@$(BIN)/python -m tools.grafana_dashboard

docs: setup  ## build the documentation into site/; a broken link is an error
	@$(BIN)/python -m tools.docs_site

clean:  ## remove everything that was built, and the demo's data
	rm -rf .venv .cache dist build site demo-data pipelines-data .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Before a release

prove: setup  ## pinned seeds, 500 fresh ones, one in four with several stores, 200,000 crash states, a line in benchmarks/results/reliability.jsonl; tests with all their drawn cases (about 20 minutes)
	@SARIT_TEST_FULL=1 nice $(BIN)/pytest -n 2 --dist loadfile tests/unit tests/contract tests/test_fuzz.py
	@nice $(BIN)/pytest -m long tests/unit/client tests/test_simulation_repeats.py
	@nice $(BIN)/python -m simulation prove --seeds 500 --states 200000 --processes 2

bench: setup  ## the headline figures, beside peers where they can be started
	@$(BIN)/python -m benchmarks $(BENCH)

trace: setup  ## how many modules a write, a read and a scale go through, and levels of imports, beside the goals
	@$(BIN)/python -m tools.trace $(TRACE)

cluster: setup  ## a whole cluster: the flights pipeline with Spark, a store is killed, nothing is missing (3 minutes; needs Java, Maven)
	@$(BIN)/python -m tests.cluster

# With the packages of `make setup` where they are; otherwise pip fetches what builds it, and no more.
wheel:  ## build dist/*.whl; needs no set-up
	@if [ -x $(BIN)/uv ]; then $(BIN)/uv build --quiet --wheel --no-build-isolation --out-dir dist; \
	else python3 -m pip wheel --quiet --no-deps --wheel-dir dist .; fi
	@ls dist/*.whl

newcomer: setup  ## docs/getting-started.md as it is pasted, in a fresh clone without a cache: seconds to the first event and to Spark's result (5 minutes; needs Java)
	@$(BIN)/python -m tests.newcomer

##@ The simulation

soak: setup  ## 2,000 fresh seeds, 200,000 crash states and 120 faults on real nodes, lines in benchmarks/results/reliability.jsonl (about an hour)
	@broken=0; \
	nice $(BIN)/python -m simulation prove --seeds 2000 --states 200000 --processes 2 || broken=1; \
	$(BIN)/python -m tests.chaos --faults 120 --minutes 55 --ledger || broken=1; \
	exit $$broken

models: setup  ## the small models of protocols, those with many states, too (a minute)
	@$(BIN)/pytest -m "long or not long" tests/unit/models

##@ Real nodes

scale: setup  ## ten million events through scaling and kills, then an hour of mixed load (67 minutes)
	@$(BIN)/python -m tests.scale --ledger
	@nice $(BIN)/python -m tests.scale --mixed --minutes 60 --ledger

trickle: setup  ## one small append to each of 16,000 segments per round; memory, extents and index (6 GB of disk, 5 minutes)
	@nice $(BIN)/python -m tests.scale --trickle $(TRICKLE)

bit-flips: setup  ## a bit of every byte of two small data directories: served right or refused, never wrong (10 minutes)
	@nice $(BIN)/python -m tests.faults.bit_flips --all

backups: setup  ## all tests of backup and restore, with the page in docs/operations as it is pasted (15 minutes)
	@$(BIN)/pytest -m "long or not long" tests/test_backup.py tests/unit/ops/backup tests/cluster/test_backup.py \
		tests/test_registry_restore.py tests/test_search_restore.py tests/cluster/test_registry_restore.py \
		tests/cluster/test_interrupted_backup.py tests/cluster/test_backup_places.py tests/contract/test_slate_snapshot.py

observability: setup  ## alert rules by promtool; real nodes and a cluster, and their alerts under a real Prometheus (20 minutes; needs Debian's prometheus, Java, Maven)
	@$(BIN)/pytest -m "long or not long" tests/observability tests/test_metrics.py tests/unit/env/test_traces.py

console-browser: setup  ## the web console in a headless browser, with screenshots in .cache/console (needs chromium, Java, Maven; 4 minutes)
	@$(BIN)/uv sync --quiet --locked --inexact --group browser
	@$(BIN)/pytest -m long tests/console

rest-fuzz: setup  ## made-up requests to the REST API, against its OpenAPI document, without and with users (8 minutes)
	@$(BIN)/pytest -m long tests/unit/admin/rest/test_fuzz_rest.py

##@ Clusters of real servers

cluster-failover: setup  ## 30 kills of a store under load: how long each container takes no writes; FAILOVER="moves --services" (docs/testing.md)
	@$(BIN)/python -m tests.cluster.failover $(FAILOVER)

cluster-rolling: setup  ## restart all of a cluster, one by one, under load of Pravega's clients and ours: 0 errors (docs/cluster.md)
	@$(BIN)/python -m tests.cluster.rolling $(ROLLING)

cluster-upgrade: setup  ## restart all of a cluster with another version, and back, under load: 0 errors; UPGRADE="--from COMMIT" (docs/cluster.md)
	@$(BIN)/python -m tests.cluster.upgrade $(UPGRADE)

cluster-components: setup  ## the tests with real ZooKeeper, BookKeeper and HDFS servers (needs Java and Maven)
	@$(BIN)/pytest -m long tests/components tests/contract tests/cluster

bookkeeper-kills: setup  ## 40 kills of bookies, ZooKeeper and the node under load, all checkers (15 minutes; needs Java and Maven)
	@$(BIN)/python -m tests.components.bookkeeper_kills $(BOOKKEEPER)

lake-kills: setup  ## 40 kills of a committer at each of its steps, and an object store that loses replies (15 minutes)
	@SARIT_LAKE_KILLS=40 $(BIN)/pytest -m "long or not long" tests/faults/test_lake_kills.py \
		tests/faults/test_lake_object_store.py

mirror-kills: setup  ## 100 cuts of a link's network and 40 kills of its nodes under load; MIRROR="--pull" (6 minutes)
	@$(BIN)/python -m tests.mirror.kills $(MIRROR)
	@$(BIN)/pytest -m long tests/mirror

search-kills: setup  ## the index of a million lines of installed packages against a scan, with 40 kills of its node (5 minutes)
	@$(BIN)/python -m tests.search.kills

runbooks: setup  ## docs/operations/runbooks.md as it is pasted, on a cluster of real servers that loses one after the other (8 minutes; needs Java, Maven)
	@$(BIN)/pytest -m long tests/runbooks

##@ Official clients and Spark

interop-processes: setup  ## the tests with the official clients, on nodes of three store processes (10 minutes)
	@SARIT_TEST_PROCESSES=3 $(BIN)/pytest -m "long or not long" tests/interop

training: setup  ## the loaders with PyTorch, Hugging Face's datasets and Ray, and their guide, in an environment in .cache (6 GB at first; 5 minutes)
	@$(BIN)/python -m tests.training $(TRAINING)

edge: setup  ## three nodes at the edge push to a core over networks that break; the core dies, and its mirror goes on, with a query of Spark (4 minutes; Java)
	@$(BIN)/pytest -m "long or not long" tests/edge

interop-registry: setup  ## the clients of schema registries for Node.js and Go (they are installed from their registries; 3 minutes)
	@$(BIN)/pytest -m "long or not long" tests/interop/test_registry_clients.py tests/interop/test_confluent_client.py

interop-security: setup  ## the tests with the official clients, on nodes with users, delegation tokens of 30 s and TLS (5 minutes)
	@SARIT_TEST_SECURITY=1 $(BIN)/pytest -m "long or not long" tests/interop tests/test_processes.py

spark-cluster: setup  ## the Spark tests that need a cluster, or kill a chain of jobs (5 minutes)
	@$(BIN)/pytest -m long tests/spark

spark-kills: setup  ## 40 kill -9 of Spark drivers, executors, workers and the node under a chain of jobs (about 20 minutes)
	@$(BIN)/python -m tests.spark.kill_matrix --scale $(KILLS)

spark-matrix: setup  ## the tests of the Spark connector with PySpark 4.1, 4.2 and 4.3, each in .cache (about an hour)
	@$(BIN)/python -m tests.spark.matrix $(SPARK)

lake-readers: setup  ## Presto, Trino, DuckDB, Spark and PyIceberg read the tables of streams that are committed to (5 minutes; needs Java, Maven; Trino: Java 24)
	@$(BIN)/pytest -m long tests/lake_readers

##@ Releases

security-scan: setup  ## bandit over src, known vulnerabilities of what is locked (asks an advisory service), the tests of security
	@$(BIN)/uv sync --quiet --locked --inexact --group scan
	@$(BIN)/bandit --quiet --recursive -ll --exclude src/sarit/rpc/generated src
	@mkdir -p .cache
	@$(BIN)/uv export --quiet --locked --no-default-groups --no-emit-project --all-extras > .cache/locked.txt
	@$(BIN)/python -m tools.vulnerabilities .cache/locked.txt
	@$(BIN)/pytest -m "long or not long" tests/security tests/unit/security

deploy-check: setup  ## what is in deploy/: linters of Dockerfiles, Compose, Helm, Kubernetes' schemas; the image's steps and the compose cluster as processes (needs Go, Java; 10 minutes at first)
	@$(BIN)/pytest -m "long or not long" tests/deploy

release: setup  ## everything that a version is published with, into dist/release: wheel, sdist, chart, image, SBOM, checksums; twine check
	@$(BIN)/uv sync --quiet --locked --inexact --group release
	@$(BIN)/python -m tools.release $(RELEASE)

wheel-matrix: setup  ## the wheel in empty environments of each Python from 3.11 that is here, a node's and a client's: a write, a read (5 minutes)
	@$(BIN)/python -m tests.wheel_matrix
