# The commands of the README. Each makes its own virtual environment the first time; nothing but Python is presumed.
PYTHON ?= python3
# A CPU build; on a GPU machine: make TORCH=torch demo
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
# Which tests to run, for example: make test TESTS="tests/test_conversion.py -k bert"
TESTS ?= tests

.DEFAULT_GOAL := help
.PHONY: help demo test slow-tests lint format peer-tests model-cards bench bench-quick clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# torch goes first: left to another package's requirements, pip would choose a build of several GB.
$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hf_ffn needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,test,lint,peer-tests]'
	@touch $@

demo: $(BIN)/.installed ## Convert a real checkpoint, prove it, load it without hf_ffn, fine-tune it, publish it
	$(BIN)/python scripts/demo.py

test: $(BIN)/.installed ## Run the tests, all but those marked slow
	$(BIN)/python -m pytest -n 2 -q -m "not slow" $(TESTS)

slow-tests: $(BIN)/.installed ## Run the tests that take long: twenty kills, several processes, whole fine-tunes, half precision
	$(BIN)/python -m pytest -n 2 -q -m slow $(TESTS)

lint: $(BIN)/.installed ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy hf_ffn hf_ffn_cli.py

format: $(BIN)/.installed ## Format the code and mend what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

peer-tests: $(BIN)/.installed ## Run transformers' own model tests against our classes
	$(BIN)/python scripts/peer_tests.py

model-cards: $(BIN)/.installed ## Make the models that the project would publish, and write their cards
	$(BIN)/python scripts/make_model_cards.py

# torch stays the build that is there.
$(BIN)/.bench: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

bench: $(BIN)/.bench ## Measure hf_ffn beside transformers, ONNX Runtime, OpenVINO and CTranslate2 (ten minutes)
	$(BIN)/python scripts/benchmark.py all --json bench.json --plot bench-pictures

bench-quick: $(BIN)/.bench ## The same on tiny models: does it run, and is it right (a minute)
	$(BIN)/python scripts/benchmark.py all --quick

clean: ## Remove the environment and what was built
	rm -rf $(VENV) build dist demo model-cards-work bench.json bench-pictures .cache .mypy_cache .pytest_cache .ruff_cache
