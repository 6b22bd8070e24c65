# The developer's commands are CI's commands. `make demo` is all that a newcomer needs.
PYTHON ?= python3.11
BIN := .venv/bin
.PHONY: setup demo test code-sets faults interop check dashboard lock clean

setup: .venv/installed  ## make .venv and install everything, at the locked versions

.venv/installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,interop]'
	touch $@

demo: setup  ## run the quickstart study and print its front
	$(BIN)/plt run experiments/quickstart.yaml

test: setup  ## run every test
	$(BIN)/python -m pytest

code-sets: setup  ## fetch HumanEval and MBPP for the tests that run their reference solutions (86 MB)
	PLT_HOME=.code-sets $(BIN)/plt data fetch

faults: setup  ## break 200 studies at random moments; STORAGE=postgres keeps them there; PLT_FAULT_SEED repeats a session
	PLT_FAULT_ROUNDS=$${PLT_FAULT_ROUNDS:-200} PLT_FAULT_STORAGE=$(STORAGE) $(BIN)/python -m pytest tests/faults

interop: setup  ## run exports in the oldest transformers, llama.cpp and vLLM; the first time builds 5 GB of environments
	PYTHON=$(PYTHON) tests/engines/environments.sh .venv-interop > .venv-interop.pythons
	PLT_ENGINE_PYTHONS=$$(paste -sd: .venv-interop.pythons) $(BIN)/python -m pytest -s tests/engines
	PYTHONPATH=. .venv-interop/transformers/bin/python -m pytest tests/workers/interop/test_transformers.py

check: setup  ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

dashboard: setup  ## open the dashboard at localhost:8501
	$(BIN)/plt dashboard

lock:  ## pin what a fresh resolution of pyproject.toml gives; review the diff
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' -e '.[dev,interop]'
	.venv-lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock
	rm -rf .venv-lock

clean:  ## remove the virtual environment and caches, keep studies
	rm -rf .venv .venv-lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
