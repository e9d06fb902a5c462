# Every target sets itself up: a virtual environment in .venv, and the npm packages of the tests where Node is there.
# PYTHON=… chooses the interpreter, TESTS=… the tests (`make test TESTS=tests/test_config.py`).

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
TESTS ?=
# Tests share no state; one worker keeps the tests of a file together, so a gateway is started once for each file.
PYTEST := $(BIN)/python -m pytest --timeout 300 -n 2 --dist loadfile

# The first interpreter that Hermes 0.19 accepts: 3.11, 3.12 or 3.13.
IN_RANGE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c '$(IN_RANGE)' 2>/dev/null && echo $$p && break; done)

.PHONY: help demo test test-all test-compat check bench web clean

help:
	@echo "make demo      start a real gateway with a scripted model and show how to talk to it"
	@echo "make test      all tests but the slow ones: unit, properties, real gateway, official clients in Node"
	@echo "make test-all  the slow ones too"
	@echo "make test-compat  the core on other versions of Hermes and Python (COMPAT=NAME for one; makes .compat)"
	@echo "make check     what to run before a commit: format, lint, types, quick tests"
	@echo "make bench     measure against Hermes's own api_server and other AG-UI servers; writes bench/results"
	@echo "make web       build the web console that is served at / (needs Node 20.19 or newer)"
	@echo "make clean     remove what the other targets made"

demo: $(VENV)/.demo console
	@exec $(BIN)/hermes-agui demo

test: $(VENV)/.dev js console
	$(PYTEST) -m "not slow" $(TESTS)

test-all: $(VENV)/.dev js console copilotkit mcpjs
	$(PYTEST) $(TESTS)

# Environments of their own, made when first asked for: about 400 MB and some minutes each.
COMPAT ?=
test-compat: $(VENV)/.dev
	$(BIN)/python -m tests.compat $(COMPAT)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict agui_adapter
	$(PYTEST) -m "not e2e and not node and not slow" $(TESTS)

bench: $(VENV)/.bench
	$(BIN)/python -m bench

web: agui_adapter/web/index.html

clean:
	rm -rf $(VENV) .bench .compat agui_adapter/web web/node_modules examples/*/node_modules tests/js/node_modules tests/rest_js/node_modules tests/copilotkit/node_modules tests/mcpjs/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# --- setting up ---

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c '$(IN_RANGE)' 2>/dev/null; then \
		echo "Python 3.11, 3.12 or 3.13 is needed and was not found as '$(or $(PYTHON),python3)'." \
			"Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; fi
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module is not complete; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

# A development environment can run the demo too, so the demo adds nothing to one that is there.
$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@if [ -e $(VENV)/.dev ] && [ ! $(VENV)/.dev -ot pyproject.toml ]; then :; else \
		echo "Installing Hermes and this plugin into $(VENV) (once)"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'; fi
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Hermes, this plugin and the test tools into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,mcp]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,mcp,bench]'
	@touch $@

# The tests marked `node` and `copilotkit` skip themselves with a reason where Node is missing.
.PHONY: js copilotkit
js:
	@if command -v npm >/dev/null && [ -e tests/js/package-lock.json ]; then \
		$(MAKE) --no-print-directory tests/js/node_modules/.stamp tests/rest_js/node_modules/.stamp \
			examples/minimal/node_modules/.stamp; \
		else echo "npm is missing: the tests with the official clients in Node will be skipped" >&2; fi

NODE_STAMPS := $(addsuffix /node_modules/.stamp,tests/js tests/rest_js tests/copilotkit examples/minimal examples/copilotkit)
$(NODE_STAMPS): %/node_modules/.stamp: %/package-lock.json
	npm ci --prefix $* --no-audit --no-fund
	@touch $@

# The web console. Without Node the server says at / what to do, and the tests in the browser skip themselves.
.PHONY: console
console:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory agui_adapter/web/index.html || \
			echo "The web console could not be built; everything else works without it." >&2; \
		else echo "npm is missing: there will be no web console at /" >&2; fi

agui_adapter/web/index.html: web/node_modules/.stamp web/index.html web/vite.config.ts $(shell find web/src web/public -type f 2>/dev/null)
	npm run build --prefix web
	@touch $@

web/node_modules/.stamp: web/package-lock.json
	npm ci --prefix web --no-audit --no-fund --ignore-scripts
	@touch $@

# Some hundred MB each, for `test-all` alone.
copilotkit:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory tests/copilotkit/node_modules/.stamp \
			examples/copilotkit/node_modules/.stamp; \
		else echo "npm is missing: the tests with CopilotKit will be skipped" >&2; fi

# MCP's conformance suite, inspector and TypeScript client, and the Node 22 that the suite wants: about 320 MB.
.PHONY: mcpjs
mcpjs:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory tests/mcpjs/node_modules/.stamp; \
		else echo "npm is missing: the tests with MCP's own programs will be skipped" >&2; fi

tests/mcpjs/node_modules/.stamp: tests/mcpjs/package-lock.json
	npm ci --prefix tests/mcpjs --no-audit --no-fund
	@touch $@
