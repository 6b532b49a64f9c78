# Everything here needs Python 3.11 or newer and make, and nothing else: the first run builds .venv from requirements.lock.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first of these that is new enough; `make test PYTHON=/path/to/python3.13` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# Named after what it was built from, so that a changed lock or project file installs again.
READY := $(VENV)/.ready-$(shell cat requirements.lock pyproject.toml | cksum | cut -d' ' -f1)

# Processes are started by the hundred: where Python is told to keep nothing of what it compiles, each would compile it all.
export PYTHONDONTWRITEBYTECODE :=

# Two selections that together are all tests, which tests/test_selection.py checks: what a developer waits for, and the rest.
QUICK := -m "not slow and not containers"
REST := -m "slow or containers"

# What coverage is asked about. Measuring takes half as long again, so `make test` does without.
MEASURED := tests/checkpoint tests/state src/falkirk/checkpoint src/falkirk/state \
	$(addprefix tests/simulator/test_,$(addsuffix .py,world log broker copies coordinators backfill refused full_disks))

# A worker that hangs ends its process. A replacement would run the same test again, so there is none.
# Files stay together, for what their tests share, and are handed out in order.
PYTEST := $(BIN)/python -m pytest
SPREAD := --max-worker-restart 0 --dist loadfile --no-loadscope-reorder

comma := ,
say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

.PHONY: help
help: ## What there is to make
	@grep -hE '^[a-z]+:.*## ' Makefile | awk -F':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

.PHONY: test
test: lint kafka ## Style, types, import contract, and every test that is not slow (minutes)
	$(call say,Tests)
	@# Three at a time on two cores: tests of processes wait for a quarter of their time, the slow ones too.
	@$(PYTEST) $(QUICK) -n 3 $(SPREAD) --durations=40

.PHONY: proof
proof: docs coverage slow ## The rest: slow tests, containers, documents, and 95 % branch coverage of checkpoint/ and state/

.PHONY: coverage
coverage: kafka
	$(call say,Coverage of the protocol and of state)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(QUICK) -n 2 --max-worker-restart 0 --dist worksteal --durations=15 $(MEASURED)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=95

.PHONY: slow
slow: kafka
	$(call say,Slow tests$(comma) and those in containers)
	@$(PYTEST) $(REST) -n 3 $(SPREAD) --durations=40

.PHONY: lint
lint: $(READY) ## Style, types, and who may import whom
	$(call say,Style)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	$(call say,Types)
	@$(BIN)/mypy
	$(call say,Import contract)
	@$(BIN)/lint-imports

.PHONY: docs
docs: $(READY) ## The documents as a site, in .build/site, with every link checked
	$(call say,Documents)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: demo
demo: kafka ## The real flights of 2013, with workers killed on the way, compared at the end
	$(call say,Demo)
	@$(BIN)/python examples/flights/demo.py

.PHONY: soak
soak: kafka ## 3,400 kill -9, 100 epochs under kills, 2,000 faults on the network, every output checked (hours)
	$(call say,Soak)
	@$(PYTEST) -m slow --every-case -n 2 --dist worksteal tests/simulator
	@$(BIN)/python -m tests.soak --kills 1000
	@$(BIN)/python -m tests.soak --kills 200 --flow daily
	@$(BIN)/python -m tests.soak --kills 200 --brokers 3
	@$(BIN)/python -m tests.soak --kills 1000 --brokers 3 --flow relational
	@$(BIN)/python -m tests.epochs --epochs 100
	@$(BIN)/python -m tests.faults.trial --faults 2000
	@$(BIN)/python -m tests.serve --requests 10000
	@$(BIN)/python -m tests.travel --kills 1000

.PHONY: bench
bench: kafka ## The figures of bench/RESULTS.md, measured on this machine
	$(call say,Bench)
	@$(BIN)/python bench/run.py

.PHONY: kafka
kafka: $(READY) ## Fetch the embedded Kafka's jars, and prepare fast starts of Kafka and Spark (once for each user)
	@$(BIN)/falkirk kafka fetch
	@$(BIN)/falkirk spark prepare || true

.PHONY: lock
lock: $(READY) ## Choose newer versions of all dependencies, within the bounds of pyproject.toml
	$(call say,Lock)
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --upgrade --extra kafka --extra spark --extra demo --extra dev --universal \
		--python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' --quiet -o requirements.lock
	@$(BIN)/python tools/pin_jars.py

.PHONY: clean
clean: ## Remove the environment, the caches and what was built
	rm -rf $(VENV) build dist src/*.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY):
	@if [ -z "$(PYTHON)" ]; then \
		echo "falkirk needs Python 3.11 to 3.14; found: $$(python3 --version 2>&1 || true)" >&2; \
		echo "  to do: install one, or name it: make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python3.13" >&2; exit 1; fi
	$(call say,Python environment in $(VENV) (once))
	@if [ ! -x $(BIN)/python ] && ! $(PYTHON) -m venv $(VENV); then \
		rm -rf $(VENV); \
		echo "$(PYTHON) cannot create a virtual environment" >&2; \
		echo "  to do: install its venv module (on Debian and Ubuntu the package python3-venv)" >&2; exit 1; fi
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.ready-* && touch $(READY)
