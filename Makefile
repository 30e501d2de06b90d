# `make demo` and `make test` set everything up on a fresh machine, then run. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test torture lint kernels docs build pictures clean

demo: $(VENV)/installed
	$(BIN)/facetric demo

test: $(VENV)/installed
	$(MAKE) --jobs 2 lint kernels
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal -m "not slow" src tests

TORTURE_MINUTES ?= 30
torture: $(VENV)/installed # kills, damage, files that cannot grow and bad inputs for about this many minutes
	TORTURE_MINUTES=$(TORTURE_MINUTES) FACETRIC_EXAMPLES=500 $(BIN)/pytest -s tests/torture/torture_*.py tests/torture/test_fuzz.py

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

kernels: $(VENV)/installed # which all processes of the tests then find compiled
	$(BIN)/python tests/kernels.py

docs: $(VENV)/installed # the site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

build: $(VENV)/installed # sdist and wheel, in dist/
	$(BIN)/python -m build --no-isolation

pictures: runs/glyphs/embeddings.npz # the committed pictures of docs/pictures
	$(BIN)/python docs/make_pictures.py --run runs/glyphs

runs/glyphs/embeddings.npz: | $(VENV)/installed
	$(BIN)/facetric train configs/glyphs.toml
	$(BIN)/facetric evaluate runs/glyphs

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
