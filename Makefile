# Each target sets up what it needs by itself, in a virtual environment in this folder.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test lint quick bench clean

demo: $(VENV)/.demo  ## train on real images in a real notebook; the verdict, the fix, the second verdict
	$(BIN)/python examples/demo.py

test: lint  ## everything that CI checks
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage report --skip-covered --skip-empty --fail-under 85

quick: $(VENV)/.test  ## the tests that need no fresh process, kernel or framework
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.bench  ## overhead beside the peers; takes minutes
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf $(VENV) out build dist

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.%: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing what '$*' needs into $(VENV) (once; a few minutes) ..."
	$(INSTALL) --editable '.[$*]'
	@touch $@
