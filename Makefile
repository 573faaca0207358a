# Every target sets up .venv itself, once, and again when the constraints or the dependencies change.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

$(READY): constraints.txt setup.py
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[model,sentencepiece,yaml,dev,stores]'
	@touch $@

.PHONY: setup
setup: $(READY) ## make .venv with everything in it

.PHONY: test
test: $(READY) ## run the tests, in two processes
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not engines" $(PYTEST_ARGS)

.PHONY: fast
fast: $(READY) ## run the tests that take no time, in under a minute
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not engines and not slow" $(PYTEST_ARGS)

.PHONY: demo
demo: $(READY) ## run all jobs on the corpus in demo/sentences and say where the report is
	$(BIN)/sbert-beam run --input demo/sentences --output demo-out --labels_column topic --time_column created_at \
		--title "Support tickets of a shop"
	$(BIN)/sbert-beam search --queries "where is my parcel" --corpus demo-out/embeddings --top_k 3
	@$(BIN)/python demo/look.py

.PHONY: lint
lint: $(READY) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: bench
bench: $(READY) ## measure what the README claims: make bench DATA=folder
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.encode --data "$(DATA)"
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.embed --data "$(DATA)"
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.mine --data "$(DATA)" --vectors $(VENV)/bench-vectors.npy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.cluster --data "$(DATA)" --vectors $(VENV)/bench-vectors.npy
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.tune --data "$(DATA)" --work $(VENV)/bench-tune
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.scale --work $(VENV)/bench-scale
	$(BIN)/python -m benchmarks.scale_model
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.checks --data "$(DATA)"
	$(BIN)/python -m benchmarks.documents

.PHONY: large
large: $(READY) ## measure corpora of up to two million rows, for hours: make large DATA=folder MODELS=folder
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.routed --data "$(DATA)" --models "$(MODELS)" --vectors $(VENV)/bench-vectors.npy
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.levels --data "$(DATA)" --cache $(VENV)/bench-sets
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.million --data "$(DATA)" --models "$(MODELS)" --work $(VENV)/bench-million
	$(BIN)/python -m benchmarks.documents

.PHONY: engines
engines: $(READY) ## prove the jobs on every engine and object store at hand and write the tables in docs/operating.md
	HF_HUB_OFFLINE=1 ENGINES_RECORD=benchmarks/results/engines.json $(BIN)/python -m pytest -m engines
	$(BIN)/python -m benchmarks.engines

.PHONY: faults
faults: $(READY) ## kill, starve, damage and deceive the jobs for 18 minutes and store what came of it
	$(BIN)/python -m benchmarks.faults

.PHONY: experiments
experiments: $(READY) ## rerun docs/experiments.md, for hours: make experiments DATA=folder MODELS=folder [WORKERS=2]
	seq $(WORKERS) | HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 xargs -P $(WORKERS) -I{} $(BIN)/python -m benchmarks.experiments \
		--data "$(DATA)" --models "$(MODELS)" --work experiments-work
	$(BIN)/python -m benchmarks.experiment_tables
	$(BIN)/python -m benchmarks.documents

.PHONY: clean
clean: ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist demo-out *.egg-info
