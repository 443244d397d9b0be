# Everything happens in .venv; Python 3.11 or newer, git and make are all that a machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-trl test-trackers fuzz check bench bench-detect setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[trl,figures,dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/foreshock demo

test: setup
	$(BIN)/python -m pytest -n auto -m 'not slow'

test-slow: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m pytest -m slow

# Hypothesis with new random examples; the tests of `make test` draw the same ones every time.
fuzz: setup
	HYPOTHESIS_PROFILE=new $(BIN)/python -m pytest -n auto -m 'not slow' tests/sketch tests/sources tests/run tests/live tests/rules

# The trainer tests with the two TRL minors before the pinned one. TRL 1.15 computes log-probabilities with Triton only.
test-trl: setup
	$(BIN)/pip install --quiet --no-deps --target build/trl-1.14 trl==1.14.2
	$(BIN)/pip install --quiet --no-deps --target build/trl-1.15 trl==1.15.0 triton
	PYTHONPATH=build/trl-1.14 $(BIN)/python -m pytest tests/adapters
	TRITON_INTERPRET=1 PYTHONPATH=build/trl-1.15 $(BIN)/python -m pytest tests/adapters/test_grpo.py

# Files that wandb, MLflow and Trackio write; they weigh 200 MB, and reading their files needs none of them.
test-trackers: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test-trackers]'
	$(BIN)/python -m pytest tests/sources/test_sources_trackers.py

bench: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/sketch.py
	$(BIN)/python benchmarks/detect.py --quick
	$(BIN)/python benchmarks/series_rules.py
	$(BIN)/python benchmarks/overhead.py

# The detectors in full, and beside them three other tools in an environment of their own.
bench-detect: setup
	test -x build/peers/bin/python || $(PYTHON) -m venv build/peers
	build/peers/bin/pip install --quiet --requirement benchmarks/peers/requirements.txt
	$(BIN)/python benchmarks/detect.py --peers build/peers/bin/python

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
