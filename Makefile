# Every target that needs the environment makes it by itself; `make help` lists them.

PY := .venv/bin/python
TESTS ?= tests

.PHONY: help setup check test thorough mutants demo bench lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock (skipped while that is unchanged)
	@python="$$(PYTHON='$(PYTHON)' sh tools/find_python.sh)" && "$$python" tools/set_up.py

check: setup ## lint, formatting, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

test: check ## everything that CI runs
	$(PY) -m pytest -n 2 --dist loadgroup $(TESTS)

thorough: setup ## the queue machine beside its model: some 250 000 steps, half an hour
	$(PY) -m pytest -n 2 --timeout 3600 --hypothesis-profile=thorough tests/machine/model

mutants: setup ## break the queue machine in many ways: each must be caught by the model
	$(PY) -m tests.machine.model.mutants

demo: setup ## three nodes, Spark, 336 776 flights, a killed leader, a report
	@exec $(PY) -m bench.demo

bench: setup ## the rates of this machine: medians of repeated runs
	@exec $(PY) -m bench.rates

lock: setup ## write requirements.lock anew from pyproject.toml (needs uv)
	UV_PYTHON_DOWNLOADS=never uv pip compile pyproject.toml --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade \
	  --all-extras --group dev --group build --output-file requirements.lock

clean: ## remove .venv, caches and reports
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
