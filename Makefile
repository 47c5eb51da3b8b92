PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
STAMP  := $(VENV)/.installed

.PHONY: install demo lint test test-quick test-slow docs reference

install: $(STAMP)-test

# Torch by itself and first, at the pinned version: asked for together with the others pip may settle on another build.
$(STAMP)-torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

$(STAMP)-demo: pyproject.toml $(STAMP)-torch
	$(PIP) --editable .
	touch $@

$(STAMP)-docs: pyproject.toml $(STAMP)-torch
	$(PIP) --editable '.[docs]'
	touch $@

# Label Studio's package by itself: it asks for opencv-python, which takes the place of opencv-python-headless.
$(STAMP)-test: pyproject.toml $(STAMP)-torch
	$(PIP) --editable '.[test]'
	$(PIP) --no-deps label-studio-sdk
	touch $@

demo: $(STAMP)-demo
	$(BIN)/sightline demo
	@echo '  (sightline is $(BIN)/sightline; README.md, "Your own documents", goes on from here)'

lint: $(STAMP)-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Bytecode is kept even where the environment says otherwise: hundreds of test processes import the package. One heap
# for all threads of a process: each of many short threads would keep one of its own, half a gigabyte in all.
PYTEST := PYTHONDONTWRITEBYTECODE= MALLOC_ARENA_MAX=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

# Types are checked beside the tests: alone they would keep one of two cores for two minutes.
test: $(STAMP)-test
	$(MAKE) --jobs 2 lint test-quick

test-quick: $(STAMP)-test
	$(PYTEST) -m "not slow"

test-slow: $(STAMP)-test
	sh tests/browser/install_chromium.sh
	sh tests/integration/install_tex.sh
	$(PYTEST) -m slow

docs: $(STAMP)-docs
	$(BIN)/mkdocs build --strict

reference: $(STAMP)-docs
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/reference.py
