# One entry for people and machines. `make help` lists the targets.
# A fresh machine needs make and Python 3.11 or newer; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.set-up
NOT_INSTALLED = echo "pip could not install what Treadle needs: is the package index reachable from here? See pip's own message above." >&2; exit 1;

# Whether `make test` measures branch coverage, and the percentage of src/treadle below which it fails then.
COVERAGE ?=
COVERAGE_MIN ?= 95
# Processes that run the tests. Many tests wait for limits and for other processes, so three keep two cores busy. One that has
# nothing left takes tests from the others.
WORKERS ?= 4
# Options for pytest, such as TESTS="tests/journals -k lease".
TESTS ?=
# Options and names for `make bench-rivals` and `make conformance-rivals`, such as RIVALS="--quick langgraph".
RIVALS ?=
# Options and names for `make bench-models`, such as MODELS="--tasks held-out treadle_default".
MODELS ?=
# How long `make soak` kills real processes, and how many lives it simulates before.
SOAK_SECONDS ?= 3600
LIVES ?= 1000000
# How many changes of the code `make mutate` tries, and more options for it, such as MUTATE="--only recovery.py" or MUTATE=--again.
MUTANTS ?= 300
MUTATE ?=
# The life that `make simulate` replays; what draws the changes of `make mutate`.
SEED ?= 0

# Without compiled files, each of the thousand processes of the tests would compile Treadle again.
unexport PYTHONDONTWRITEBYTECODE

# State of the demo stays in the project's folder, away from the person's own sessions.
DEMO_HOME := build/demo
DEMO_TASK := Keep searching for errors in every file
DEMO_CALLS := 8

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMP)  ## Make .venv and install the project with what its development needs

# What a person needs to run it: the project, its dependencies and the terminal's, and no tool of a developer.
$(RUNTIME): pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "Treadle needs Python 3.11 or newer, and $(PYTHON) was not found: install it, or run \`make PYTHON=/path/to/python3\`." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Treadle needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): run \`make PYTHON=python3.11\`, or a newer one." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "This Python has no venv module with pip: install it (on Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	@[ -x $(BIN)/python ] && $(BIN)/python -c 'import pip' 2>/dev/null || { \
	  rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); }
	@echo "Installing Treadle into $(VENV) (once, and again when pyproject.toml changes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.' || { $(NOT_INSTALLED) }
	@touch $@

$(STAMP): $(RUNTIME) scripts/dev_requirements.py
	@$(BIN)/python scripts/dev_requirements.py pyproject.toml > $(VENV)/dev-requirements.txt
	@echo "Installing the developers' tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/dev-requirements.txt || { $(NOT_INSTALLED) }
	@touch $@

.PHONY: demo
demo: $(RUNTIME)  ## Run the main job on a small sample folder: no key, no network
	@mkdir -p $(DEMO_HOME)
	@echo '$$ treadle run -m demo "$(DEMO_TASK)" -C docs_src/sample --max-tool-calls $(DEMO_CALLS)'
	@code=0; TREADLE_HOME="$(abspath $(DEMO_HOME))" $(BIN)/treadle run -m demo "$(DEMO_TASK)" \
	  -C docs_src/sample --max-tool-calls $(DEMO_CALLS) || code=$$?; \
	if [ $$code -ne 10 ]; then \
	  echo "The demo should have stopped at its limit with exit code 10, and ended with $$code." >&2; exit 1; fi; \
	echo; \
	echo "As expected, the run stopped at its limit of $(DEMO_CALLS) calls with a summary: exit code 10 means that a budget was reached."

.PHONY: lint
lint: $(STAMP)  ## Check style, form, types and imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache >$(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

.PHONY: format
format: $(STAMP)  ## Let the formatter and the linter fix what they can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(STAMP)  ## Put the samples into the pages, and build the site with its reference into build/site
	$(BIN)/python scripts/docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html. For machines: build/site/llms.txt and build/site/llms-full.txt."

.PHONY: picture
picture: $(STAMP)  ## Redraw the drawings, the pictures of the README and the screens of docs/use/terminal.md, and record a new user's path as docs/walk.cast
	$(BIN)/python scripts/drawings.py
	$(BIN)/python scripts/picture.py
	$(BIN)/python scripts/walk.py
	$(BIN)/python scripts/screens.py
	$(BIN)/python scripts/web_pictures.py

.PHONY: collected
collected: $(STAMP)  # pytest compiles every test on its first visit: once, in place of once for each process
	@$(BIN)/python -m pytest --collect-only -qq $(TESTS) >$(VENV)/collected.log 2>&1 || { cat $(VENV)/collected.log; exit 1; }

.PHONY: test
test: $(STAMP)  ## Lint, then run every test; COVERAGE=yes measures branch coverage too, which takes half as long again
	@$(MAKE) --no-print-directory --jobs=2 lint collected
ifeq ($(COVERAGE),)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)
else
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal $(TESTS)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --fail-under=$(COVERAGE_MIN)
endif

.PHONY: conformance
conformance: $(STAMP)  ## Run the MCP conformance suite, the protocol's inspector and the AG-UI client, programs for Node, which npm fetches
	$(BIN)/python scripts/conformance.py

.PHONY: conformance-rivals
conformance-rivals: $(STAMP)  ## Hold other libraries against the suite of `treadle conformance`; RIVALS="pydantic_ai llm" for fewer
	$(BIN)/python benchmarks/conformance/compare.py $(RIVALS)

.PHONY: bench
bench: $(STAMP)  ## Measure the overhead of the loop against a bare one
	$(BIN)/python benchmarks/run.py

.PHONY: bench-record
bench-record: $(STAMP)  ## Record new cost limits for the scenarios of tests/benchmarks
	$(BIN)/python tests/benchmarks/counts.py --record

.PHONY: bench-rivals
bench-rivals: $(STAMP)  ## Measure other libraries beside Treadle; RIVALS="--quick langgraph" for options and names
	$(BIN)/python benchmarks/rivals.py $(RIVALS)

.PHONY: bench-models
bench-models: $(STAMP)  ## Measure what a small model gets done in Treadle and in others; MODELS="--tasks all -n 5" for options and names
	$(BIN)/python benchmarks/models/measure.py $(MODELS)

.PHONY: soak
soak: $(STAMP)  ## Simulate LIVES lives from seeds, kill real processes for SOAK_SECONDS, kill workers, change 20,000 answers of each new dialect
	PYTHONPATH=tests $(BIN)/python -m simulator --lives $(LIVES) --workers $(WORKERS) --pairs
	$(BIN)/python benchmarks/soak.py --seconds $(SOAK_SECONDS)
	$(BIN)/python benchmarks/soak.py --store postgres --seconds $(SOAK_SECONDS)
	for spread in file postgres pgqueuer; do for scenario in kills stops share paused limits; do \
	  $(BIN)/python benchmarks/workers.py $$scenario --spread $$spread || exit 1; done; done
	for spread in postgres pgqueuer; do $(BIN)/python benchmarks/workers.py restarts --spread $$spread || exit 1; done
	TREADLE_SOAK=1 $(BIN)/python -m pytest -q -m soak
	TREADLE_MUTATIONS=20000 $(BIN)/python -m pytest -q tests/providers/test_fuzz.py
	TREADLE_BYTES=400 TREADLE_STRIDE=1 $(BIN)/python -m pytest -q tests/journals/test_feet.py tests/journals/test_postgres_silent.py -k "changed_byte or any_statement"

.PHONY: simulate
simulate: $(STAMP)  ## Replay the simulated life of SEED and print what happens in it
	PYTHONPATH=tests $(BIN)/python -m simulator --seed $(SEED) -v

.PHONY: mutate
mutate: $(STAMP)  ## Draw MUTANTS wrong changes of the engine by SEED; fail when the tests miss over one in ten
	PYTHONPATH=tests $(BIN)/python -m mutations --sample $(MUTANTS) --seed $(SEED) $(MUTATE)

.PHONY: clean
clean:  ## Remove everything that these targets make
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
