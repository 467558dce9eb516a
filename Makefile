# Penstock's front door. `make help` lists what can be done; nothing but Python 3.11+, pip, venv and make is needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
UV     := $(BIN)/uv
# Most tests wait for real servers, so four run at a time also on two cores.
PYTEST_ARGS ?= -n 4 --dist loadscope

# Both are read by uv: never fetch another interpreter, and use the one of the environment.
export UV_PYTHON_DOWNLOADS := never
export UV_PYTHON := $(CURDIR)/$(BIN)/python
# Images of containers often forbid bytecode. Tests start hundreds of processes, which would all compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo dev test check lint format format-check types imports tests bench bench-all docs lock clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with everything (a second run does nothing)

demo: $(STAMP) ## Run a small shop, kill its worker and its server, and see it go on
	$(BIN)/penstock demo

dev: $(STAMP) ## Start an embedded server for development
	$(BIN)/penstock dev

test: format-check lint types imports tests ## Check format, lint, types and imports, then run all tests

# Fewer examples and seeds than all tests try, and as many workers as cores: nothing here waits for a server.
check: export PENSTOCK_TEST_EFFORT ?= 0.3
check: PYTEST_ARGS = -n logical --dist worksteal
check: format-check lint types imports $(STAMP) ## The inner loop: everything static, and the tests that need no server (about a minute)
	$(BIN)/python -m pytest $(PYTEST_ARGS) -q tests/core tests/wire tests/settings tests/dispatch tests/engine \
		-k "not postgres"

lint: $(STAMP) ## Look for mistakes with ruff
	$(BIN)/ruff check .

format: $(STAMP) ## Rewrite the sources in the project's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

format-check: $(STAMP)
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types strictly
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports --no-logo

tests: $(STAMP)
	@# Fetched here and not inside a test, so that it is seen; without a browser only the tests that need it fail.
	@-$(BIN)/python -m tests.support.chromium
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(STAMP) ## Measure speed beside peers and judge every target: about an hour, on a machine with nothing else to do
	$(BIN)/python -m benchmarks --only targets --only footprint --only servers

bench-all: $(STAMP) ## Measure everything but the soak: about two hours
	$(BIN)/python -m benchmarks

docs: $(STAMP) ## Draw the pictures anew, then build the documentation into build/site
	for picture in docs/pictures/*.py; do $(BIN)/python "$$picture" || exit 1; done
	$(BIN)/zensical build --clean

lock: $(STAMP) ## Resolve the dependencies anew into requirements/*.txt
	$(UV) lock --quiet --upgrade
	$(UV) export --quiet --frozen --no-header --no-emit-project --no-default-groups \
		--output-file requirements/runtime.txt
	$(UV) export --quiet --frozen --no-header --no-emit-project --group dev \
		--output-file requirements/dev.txt

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis uv.lock
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Penstock needs Python 3.11 or newer, and '$(PYTHON)' is not: try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'
	@# pip is slower, but knows more ways to the packages (certificates of one's own, local indexes).
	$(UV) pip install --quiet --python $(BIN)/python --requirement requirements/dev.txt \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable . \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
