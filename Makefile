# Each command first sets up what it needs in .venv; the next one starts at once. Python 3.10 and 3.11 get all, from
# requirements.lock; 3.12 and 3.13 the newest TensorFlow without Reverb, from requirements-newest.lock.

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
DOCS_VENV := .venv-docs
DOCS_INSTALLED := $(DOCS_VENV)/.installed

NEWEST_VENV := .venv-newest
NEWEST_INSTALLED := $(NEWEST_VENV)/.installed

RIVALS_VENV := .venv-rivals
RIVALS_INSTALLED := $(RIVALS_VENV)/.installed

ACCELERATORS_VENV := .venv-accelerators
ACCELERATORS_INSTALLED := $(ACCELERATORS_VENV)/.installed

# The first that there is. Choose another one with `make PYTHON=/path/to/python3.11 ...`.
PYTHON := python3.11 python3.10 python3 python3.13 python3.12
# For `make test-newest`.
NEWEST_PYTHON := python3.13 python3.12 python3.11 python3
# Passed on to the command, as in `make train ARGS="--env=pong"`.
ARGS :=
space := $(subst ,, )
comma := ,
# Test processes; each holds TensorFlow. No more than cores: beside two of them a distributed run starts in one minute,
# beside four in three.
WORKERS := $(shell nproc | awk '{ print ($$1 < 4) ? $$1 : 4 }')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: train compare test suite test-full test-newest test-adopting chaos studies paper bench bench-gpu hosts accelerators rivals-venv docs lint format lock clean help

train: $(INSTALLED) ## Train on the embedded default; ARGS="--help" shows what else there is
	$(PY) train.py --config=quickstart $(ARGS)

# runs/quickstart-...: what `make train` has made already is not made again.
compare: $(INSTALLED) ## Train the quickstart with scaling and without, and write report.html
	$(PY) train.py --config=quickstart $(ARGS)
	$(PY) train.py --config=quickstart --scaling=none $(ARGS)
	$(PY) -m agents report runs/quickstart-*

test: $(INSTALLED) ## Check style and types and run the tests, within five minutes on two idle cores
	@if $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then exec $(MAKE) test-newest NEWEST_VENV=$(VENV); \
	else exec $(MAKE) lint suite; fi

suite: $(INSTALLED)
	$(PY) -m pytest -n $(WORKERS) --dist=loadfile --no-loadscope-reorder $(ARGS)

test-full: ## The same with the tests that take minutes or guard something rare; ARGS="-m slow" runs only those
	@$(MAKE) test ARGS='-m "not chaos" $(ARGS)'

# First the package with Keras 3, then what goes through TF-Agents with Keras 2 (tf-keras) and the local replay; what needs
# Reverb is left out by tests/conftest.py.
KERAS_3_TESTS := tests/rbs_tf tests/test_adopting.py --ignore=tests/rbs_tf/environments --ignore=tests/rbs_tf/test_scaled_loss_agents.py
NEWEST_AGENT_TESTS := tests/test_tf_agents.py tests/agents tests/networks tests/rbs_tf/environments tests/rbs_tf/test_scaled_loss_agents.py
test-newest: $(NEWEST_INSTALLED) ## Test the package and the agent beside the newest TensorFlow, in .venv-newest
	TF_USE_LEGACY_KERAS=0 $(NEWEST_VENV)/bin/python -m pytest -n $(WORKERS) $(KERAS_3_TESTS) $(ARGS)
	$(NEWEST_VENV)/bin/python -m pytest -n $(WORKERS) $(NEWEST_AGENT_TESTS) $(ARGS)

chaos: export KILLS := 20
chaos: $(INSTALLED) ## Kill every process of a distributed run at random, KILLS=20 times each: an hour for each replay
	$(PY) -m pytest -m chaos tests -s $(ARGS)

studies: export TF_CPP_MIN_LOG_LEVEL := 3
studies: $(INSTALLED) ## Draw the paper's toy figures into figures/
	@for study in intuitions derivation edge_cases noise_amplification; do \
	  $(PY) -m studies.$$study $(ARGS) || exit 1; \
	done

paper: export TF_CPP_MIN_LOG_LEVEL := 3
paper: $(INSTALLED) ## Draw the paper's figures from the shipped tables, in a minute, into docs/paper.md and docs/paper/
	@$(PY) -m benchmarks.paper $(ARGS)

bench: export TF_CPP_MIN_LOG_LEVEL := 3
bench: $(INSTALLED) ## Measure speed side by side with others, some 20 minutes on an idle core, into docs/performance.md
	@$(PY) -m benchmarks.performance $(ARGS)

bench-gpu: $(INSTALLED) ## Measure the paper's update on a GPU in ten minutes, into runs/gpu.md
	@$(PY) -m benchmarks.gpu $(ARGS)

hosts: export TF_CPP_MIN_LOG_LEVEL := 3
hosts: $(INSTALLED) ## Train on three hosts in network namespaces, one of which is cut off and one dies: as root, ten minutes
	@$(PY) -m benchmarks.hosts $(ARGS)

accelerators: export TF_CPP_MIN_LOG_LEVEL := 3
accelerators: $(INSTALLED) $(ACCELERATORS_INSTALLED) ## Compile the update for an H100 and a TPU v5e, which need not be there, in two to four hours of one core
	@$(PY) -m benchmarks.accelerators $(ARGS)

rivals-venv: $(RIVALS_INSTALLED) ## Install JAX, PyTorch and Stable-Baselines3, 1.7 GB, into .venv-rivals, for bench and test-adopting
	@echo "Next: make bench, which compares updates with theirs; make test-adopting, which runs the documentation's programs"

# Without tests/conftest.py, which is about TensorFlow.
test-adopting: $(RIVALS_INSTALLED) ## Run what the documentation shows for PyTorch and JAX, some minutes on one core
	$(RIVALS_VENV)/bin/python -m pytest --noconftest tests/elsewhere $(ARGS)

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DOCS_INSTALLED) ## Build the documentation into site/, strictly; it needs no TensorFlow
	@$(DOCS_VENV)/bin/mkdocs build --strict $(ARGS)

lint: $(INSTALLED) ## Check only style, format and types
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: $(INSTALLED) ## Rewrite the sources in the project's format
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

# All extras but those of PyTorch and JAX, which bring the others.
LOCKED := atari minatar tensorflow tf-agents
# requirements.lock is for the systems and versions of Python that `tool.uv` in pyproject.toml names, the other for all.
lock: $(INSTALLED) ## Resolve both lock files again; ARGS=--upgrade moves every pin
	$(PY) -m pip install -q uv
	@$(PY) -m uv pip compile -q pyproject.toml requirements.in $(addprefix --extra ,$(LOCKED)) --universal --python-version 3.10 \
	  --no-header --no-annotate $(ARGS) -o requirements.lock
	@printf '%s\n' 'typing-extensions>=4.6' 'pygame; python_version < "3"' 'tensorflow-probability>=0.25' gym==0.23.0 > $(VENV)/overrides
	@$(PY) -m uv pip compile -q requirements-newest.in --override $(VENV)/overrides --universal --python-version 3.11 \
	  --no-config --no-header --no-annotate $(ARGS) -o requirements-newest.lock

clean: ## Remove .venv and everything else that is built (runs/ stays)
	rm -rf $(VENV) $(DOCS_VENV) $(RIVALS_VENV) $(ACCELERATORS_VENV) site build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# `agents` and `networks`, which no wheel holds, are found from any folder, too, after everything that is installed.
FIND_CLONE = import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "rbs_tf_clone.pth").write_text("$(CURDIR)\n")

$(INSTALLED): requirements.lock requirements-newest.lock pyproject.toml setup.py | $(PY)
	@case $$($(PY) -c 'import sys; print(sys.version_info[1])') in \
	  10|11) lock=requirements.lock size='2.9 GB' ;; \
	  *) lock='requirements-newest.lock --no-deps' size='2.7 GB' ;; \
	esac; \
	[ -e $@ ] || echo "This happens once, and takes $$size of disk and some minutes."; \
	echo "Installing $${lock% *} into $(VENV) ..."; \
	$(PY) -m pip install -q --disable-pip-version-check -r $$lock && \
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(PY) -c '$(FIND_CLONE)'
	@touch $@

$(NEWEST_INSTALLED): requirements-newest.lock pyproject.toml setup.py | $(NEWEST_VENV)/bin/python
	@echo "Installing requirements-newest.lock into $(NEWEST_VENV) ..."
	@$(NEWEST_VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps -r requirements-newest.lock
	@$(NEWEST_VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(NEWEST_VENV)/bin/python -c '$(FIND_CLONE)'
	@touch $@

$(DOCS_INSTALLED): docs/requirements.txt | $(DOCS_VENV)/bin/python
	@echo "Installing docs/requirements.txt into $(DOCS_VENV) ..."
	@$(DOCS_VENV)/bin/python -m pip install -q --disable-pip-version-check -r docs/requirements.txt
	@touch $@

$(RIVALS_INSTALLED): benchmarks/rivals/requirements.txt | $(RIVALS_VENV)/bin/python
	@echo "Installing benchmarks/rivals/requirements.txt into $(RIVALS_VENV) ..."
	@$(RIVALS_VENV)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/rivals/requirements.txt
	@touch $@

$(ACCELERATORS_INSTALLED): benchmarks/accelerators/requirements.txt | $(ACCELERATORS_VENV)/bin/python
	@echo "Installing the compilers for GPU and TPU, 1.7 GB, into $(ACCELERATORS_VENV) ..."
	@$(ACCELERATORS_VENV)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/accelerators/requirements.txt
	@touch $@

$(NEWEST_VENV)/bin/python: PYTHON := $(NEWEST_PYTHON)
$(DOCS_VENV)/bin/python $(RIVALS_VENV)/bin/python: VERSIONS := 10 11
$(ACCELERATORS_VENV)/bin/python: VERSIONS := 11
$(NEWEST_VENV)/bin/python: VERSIONS := 11 12 13
$(PY): VERSIONS := 10 11 12 13
$(PY) $(DOCS_VENV)/bin/python $(RIVALS_VENV)/bin/python $(ACCELERATORS_VENV)/bin/python $(NEWEST_VENV)/bin/python:
	@for python in $(PYTHON); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info[0] != 3 or str(sys.version_info[1]) not in "$(VERSIONS)".split())' \
	    2>/dev/null || continue; \
	  "$$python" -c 'import ensurepip' 2>/dev/null || { \
	    echo "$$python cannot make virtual environments. On Debian and Ubuntu: apt install $$python-venv" >&2; exit 1; }; \
	  exec "$$python" -m venv $(@D:/bin=); \
	done; \
	command -v uv >/dev/null && exec uv venv --seed --python 3.11 $(@D:/bin=); \
	echo "None of these is a Python 3.$(subst $(space),$(comma) 3.,$(VERSIONS)): $(PYTHON)." >&2; \
	echo "Install one, or uv, which fetches one; or name yours: make $(or $(MAKECMDGOALS),train) PYTHON=/path/to/python3.11" >&2; exit 1
