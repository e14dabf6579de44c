# Every target works from a clean checkout: the environment is made on first use and
# remade when the pinned requirements change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Tests and the processes that they start keep what they compile, whatever the surroundings say.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all test-sweep test-kubernetes test-vsphere lint bench site site-serve pins clean system

# Tool and the Debian package that holds it.
SYSTEM_TOOLS := nginx:nginx-light nft:nftables ip:iproute2 chromium:chromium chromedriver:chromium-driver pg_ctlcluster:postgresql \
  redis-server:redis-server redis-cli:redis-tools prometheus:prometheus systemd-analyze:systemd curl:curl openssl:openssl

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/runtime.stamp: requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("rota needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=...)" if sys.version_info < (3, 11) else 0)'
	@echo "preparing $(VENV): once, about a minute"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q consensus membership datastore_adapter mgmt orchestrators policies chaos rota
	@touch $@

$(VENV)/development.stamp: requirements/development.txt $(VENV)/runtime.stamp
	@$(PIP) install --require-hashes -r requirements/development.txt
	@touch $@

demo: $(VENV)/runtime.stamp ## a cluster of real processes that loses a host and repairs itself (DEMO='--kill head')
	@$(BIN)/rota demo $(DEMO)

lint: $(VENV)/development.stamp ## style, types, floors of the house
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The files with tests of these marks: a process that only runs those need not read all the others.
marked = $$(grep -rlE --include='test_*.py' 'mark\.($(1))\b' tests | sort)

# Whoever has nothing left to run takes from the others: no process waits for another one at the end.
COMPUTING := --dist worksteal

# Tests with real sockets and processes run after the rest. They wait for more than half of their time, so there is room
# for twice as many of them as there are processors; those of one file run one after the other, and the files in their
# order: those with the most tests, which would go first, are not those that take longest.
WAITING := -n $$((2 * $$(nproc))) --dist loadfile --no-loadscope-reorder

test: lint ## lint and every test that needs no root and no server
	@$(BIN)/pytest -n auto $(COMPUTING) -m "not demo and not slow and not sweep and not socket and not system and not postgres and not engine and not kubernetes and not vsphere"
	@$(BIN)/pytest $(WAITING) -m "socket and not demo and not slow and not sweep and not system and not postgres and not engine and not kubernetes and not vsphere" $(call marked,socket)

# Debian runs a server of its own for whoever installs redis-server; tests start theirs, so it is stopped again.
system: ## Debian packages that only test-all needs (needs root, on Debian)
	@missing=""; \
	for entry in $(SYSTEM_TOOLS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${entry%%:*}" >/dev/null || missing="$$missing $${entry##*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "installing$$missing"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $$missing; \
	  case "$$missing" in *redis-server*) \
	    update-rc.d redis-server disable; invoke-rc.d redis-server stop;; \
	  esac; \
	fi

# Beside the tests that compute, those with servers mostly wait, so there is room for one more.
REAL := (demo or socket or system) and not sweep
test-all: lint system ## everything but the sweep, as CI runs it
	@$(BIN)/pytest -n $$(($$(nproc) + 1)) $(COMPUTING) --durations=40 -m "not demo and not socket and not system and not sweep and not kubernetes and not vsphere"
	@$(BIN)/pytest $(WAITING) --durations=15 -m "$(REAL)" $(call marked,demo|socket|system)

test-sweep: lint system ## the rest of the random cases, and what takes long on real Valkey and Redis servers
	@$(BIN)/pytest -n auto --durations=15 -m sweep

# Built once into the user's cache; whatever else is missing is said in one line.
test-kubernetes: $(VENV)/development.stamp ## the scheduler on a real kube-apiserver (needs go for the first time, and etcd-server)
	@$(BIN)/python tests/orchestrators/kubernetes/servers/programs.py
	@$(BIN)/pytest -m kubernetes tests/orchestrators/kubernetes

test-vsphere: $(VENV)/development.stamp ## rota vsphere on a simulated vCenter, which Go builds the first time
	@$(BIN)/pytest --durations=5 -m vsphere tests/orchestrators/vsphere

bench: $(VENV)/runtime.stamp ## the benchmarks
	@$(BIN)/python -m bench

site: $(VENV)/development.stamp ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

site-serve: site ## the same, served at http://127.0.0.1:8000/: search needs a server (SITE_PORT=...)
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site $(or $(SITE_PORT),8000)

pins: ## pin the requirements again (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --extra build --extra all pyproject.toml -o requirements/runtime.txt
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --all-extras -c requirements/runtime.txt pyproject.toml -o requirements/development.txt

clean: ## remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
