# `make run` shows ksched at work, `make test` runs all checks; both set up the virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than there are cores: some tests wait for processes.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# Tests start hundreds of processes; without compiled modules each of them takes 2 s instead of 0.5 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test-slow test-contract load soak run test lint types unit again lock release image test-pythons explore fuzz fuzz-http bulky docs simulate assets assets-path test-real parity parity-gangs simulate-gangs bench-real bench-gangs bench-scale bench-sharing bench-permit conformance helm simulate-hours planted-bugs clean help
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ksched needs Python 3.11 or newer, got $$($(PYTHON) --version)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[test]'
	@touch $@

run: $(VENV)/.installed ## a demo: an embedded cluster, a scripted workload and a live view
	$(BIN)/ksched demo

test: lint types unit ## ruff, the type checker in strict mode, tidy rules, all tests

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

unit: $(VENV)/.installed-test
	$(BIN)/pytest -n $(WORKERS) -m "not real and not slow"

test-slow: $(VENV)/.installed-test ## the tests that take seconds each: processes, packages, long simulations
	$(BIN)/pytest -n $(WORKERS) -m "slow and not real"

again: $(VENV)/.installed-test ## only the tests that failed in the last run, one by one
	$(BIN)/pytest --last-failed --last-failed-no-failures=none

simulate: $(VENV)/.installed-test ## short lives of clusters, with faults and killed leaders: make simulate SEEDS=0-9999
	$(BIN)/python -m lab.histories --seeds $(or $(SEEDS),1000)

simulate-hours: $(VENV)/.installed-test ## hours of clusters under injected faults, from new seeds: make simulate-hours SEEDS=100
	KSCHED_SIMULATION_FIRST=$$(date +%s) KSCHED_SIMULATION_SEEDS=$(or $(SEEDS),20) $(BIN)/pytest -n auto tests/simulation

simulate-gangs: $(VENV)/.installed-test ## random histories of gangs with faults and killed leaders: make simulate-gangs SEEDS=0-1999
	$(BIN)/python -m lab.gang_histories --seeds $(or $(SEEDS),200)

planted-bugs: $(VENV)/.installed-test ## do these histories find bugs of known kinds? the first seed that does
	$(BIN)/python -m lab.planted_bugs

fuzz: $(VENV)/.installed-test ## objects at the limits of API validation, from a new seed: make fuzz OBJECTS=20000
	$(BIN)/python -m lab.fuzz --keep-going --objects $(or $(OBJECTS),20000)

fuzz-http: $(VENV)/.installed-test ## malformed HTTP requests to a running scheduler: make fuzz-http REQUESTS=100000
	$(BIN)/python -m lab.http_fuzz --requests $(or $(REQUESTS),100000)

bulky: assets $(VENV)/.installed-test ## hostile pods as large as an API server admits, and the pods beside them: make bulky BULKY="--nodes 5000 --memory"
	$(BIN)/python -m lab.beside $(BULKY)

explore: $(VENV)/.installed-test ## the property tests with new random examples
	KSCHED_EXAMPLES=explore $(BIN)/pytest -n auto -m "not real"

docs: $(VENV)/.installed ## generate docs/plugins from the plugins' docstrings
	$(BIN)/python tools/plugin_docs.py

assets: $(VENV)/.installed ## fetch or build etcd, kube-apiserver, kube-scheduler and kubectl into the cache
	$(BIN)/python tools/assets.py

helm: $(VENV)/.installed ## also helm, for the tests of the chart
	$(BIN)/python tools/assets.py --helm

assets-path: $(VENV)/.installed
	$(BIN)/python tools/assets.py --path

test-contract: $(VENV)/.installed-test ## API contract tests on the embedded and on a real server
	$(BIN)/pytest -m real tests/contract tests/real/test_control_plane.py

test-real: $(VENV)/.installed-test ## the tests against a real control plane (make assets first)
	$(BIN)/pytest -m real --session-timeout=3600

parity: assets $(VENV)/.installed-test ## compare decisions of kube-scheduler and ksched: make parity SEEDS=1000-1049
	SEEDS="$(SEEDS)" $(BIN)/pytest -m real -s tests/parity

parity-gangs: assets $(VENV)/.installed-test ## gangs decided by kube-scheduler with its gates on and by ksched: make parity-gangs SEEDS=0-24
	SEEDS="$(SEEDS)" $(BIN)/pytest -m real -s tests/parity/test_gang_parity.py

conformance: $(VENV)/.installed-test ## Kubernetes' own tests of scheduling and devices: make conformance CONFORMANCE="--group devices"
	$(BIN)/python tools/assets.py --conformance
	$(BIN)/python -m lab.conformance $(CONFORMANCE)

bench-real: assets $(if $(PERF),,bench-gangs bench-permit) ## kube-scheduler and ksched in turns: make bench-real BENCH="--nodes 500" or PERF=misc/PreemptionBasic
	$(BIN)/python -m $(if $(PERF),bench.scheduler_perf $(PERF),bench $(BENCH))

bench-gangs: assets ## the same for gangs: make bench-gangs GANGS="--cases empty-100x30 hopeless"
	$(BIN)/python -m bench.gangs $(GANGS)

bench-scale: $(VENV)/.installed-test ## 5,000 to 100,000 nodes in process: make bench-scale SCALE="--nodes 15000"
	$(BIN)/python -m bench.scale $(SCALE)

bench-sharing: assets ## several ksched on the same nodes: make bench-sharing SHARING="--schedulers 4"
	$(BIN)/python -m bench.sharing $(SHARING)

bench-permit: assets ## 10,000 pods of gangs held at Permit: make bench-permit PERMIT="--crowd 1000"
	$(BIN)/python -m bench.permit --gang 100 $(PERMIT)

soak: assets $(VENV)/.installed-test ## an hour with hostile tenants: make soak MINUTES=60; curves in build/soak
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),60) $(SOAK)

load: $(VENV)/.installed-test ## 5,000 pods on 1,000 nodes over HTTP: each bound once, no growth
	KSCHED_LOAD_NODES=1000 KSCHED_LOAD_PODS=5000 KSCHED_LOAD_SECONDS=30 $(BIN)/pytest tests/test_load.py

lock: ## the newest versions that pyproject.toml allows, written to requirements.lock
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check --editable '.[test]'
	build/lock/bin/pip freeze --exclude-editable > requirements.lock

release: $(VENV)/.installed-test ## sdist and wheel in dist, checked in an environment of their own
	$(BIN)/python tools/release.py

image: $(VENV)/.installed ## the container image, with podman or buildah: make image BASE=debian FLAGS="..."
	$(BIN)/python tools/image.py $(if $(BASE),--base $(BASE)) $(if $(FLAGS),--flags "$(FLAGS)")

test-pythons: ## unit tests with every Python from 3.11 to 3.14 that is installed
	@for minor in 11 12 13 14; do \
		if python3.$$minor --version >/dev/null 2>&1; then \
			echo "Python 3.$$minor"; \
			$(MAKE) --no-print-directory unit PYTHON=python3.$$minor VENV=build/venv-3.$$minor || exit 1; \
		else \
			echo "Python 3.$$minor: not installed, skipped"; \
		fi; \
	done

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
