# Everything a developer does, one target each; `make help` lists them.
# Each target sets up what it needs in .venv first: repeated calls cost nothing, a changed lock
# or pyproject.toml brings the environment up to date.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
# One more than the two cores that CI has: some tests wait for clocks and servers.
WORKERS ?= 3

# uv trusts the system's certificates, uses only the Python it is given, and never fetches another.
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python a hundred times: what it compiles is kept, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-run compiled run test test-all check bench notebooks lab lock wheel release
.SUFFIXES:
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Options: PYTHON=python3.12 (3.11 to 3.14), WORKERS=3 (parallel tests), BIG=1 (bench)"

# --- environment -----------------------------------------------------------------------------

# The locks pin every package by hash; the project itself is installed editable, with the locked
# build backend, so nothing is downloaded outside the lock.
define sync
@echo "Setting up $(VENV) from $(1)"
@$(UV) pip sync --quiet --python $(PY) $(1)
@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --offline --editable .
@touch $@
endef

define python_check
import sys
version = sys.version_info[:2]
if not (3, 11) <= version < (3, 15):
    sys.exit(
        "python = %d.%d must be 3.11 to 3.14; choose another with make PYTHON=python3.12" % version
    )
endef
export python_check

$(VENV)/.stamp-uv: requirements/uv.txt
	@$(PYTHON) -c "$$python_check"
	@$(PYTHON) -m venv --clear --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(PY) install --quiet --require-hashes --no-deps -r requirements/uv.txt
	@touch $@

$(VENV)/.stamp-run: requirements/run.lock pyproject.toml $(VENV)/.stamp-uv
	$(call sync,requirements/run.lock)

$(VENV)/.stamp-dev: requirements/dev.lock pyproject.toml $(VENV)/.stamp-uv
	$(call sync,requirements/dev.lock)
	@touch $(VENV)/.stamp-run

setup: $(VENV)/.stamp-dev ## make .venv with everything that development needs

# An environment with the development packages also runs the project: it is never shrunk.
setup-run: $(if $(wildcard $(VENV)/.stamp-dev),$(VENV)/.stamp-dev,$(VENV)/.stamp-run)

# --- use -------------------------------------------------------------------------------------

run: setup-run ## run the built-in scenario `everyday`; ends with the path of its report
	@$(PY) -m simulator run everyday --force --out runs/make-run

# Jupyter refuses root unless told, and in a container one is often nobody else. The scripts that
# chapters are made from are hidden: each would stand beside its chapter.
HIDDEN := '*.py', '*.svg', '*.j2', 'site.*', '__pycache__', 'api_templates', 'jupyter'
lab: setup ## open JupyterLab on the course's start page
	@JUPYTER_CONFIG_PATH=$(CURDIR)/notebooks/jupyter $(PY) -m jupyter lab --notebook-dir notebooks \
		--LabApp.default_url=/lab/tree/README.md \
		--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate \
		--LabApp.news_url=None \
		--ContentsManager.hide_globs="[$(HIDDEN)]" \
		$(if $(filter 0,$(shell id -u)),--allow-root)

notebooks: setup ## render every notebook and the static site
	@$(PY) -m notebooks

# --- gates -----------------------------------------------------------------------------------

# Tests in parallel would each wait for the first to compile.
compiled: setup
	@$(PY) -u -c "from simulator.play.simulation import warm_up; warm_up()"

test: compiled ## the tests without the slow ones, about 2 minutes
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: compiled ## all tests, below 25 minutes
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not alone" --durations=12
	@$(PY) -m pytest -n $(WORKERS) -m alone

check: setup ## lint, format, types, layers, dependencies
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/deptry .

bench: setup ## speed, as ratios measured in one run; BIG=1 for the largest
	@$(PY) -m tests.benchmarks $(if $(filter-out 0,$(BIG)),--big)

# --- release ---------------------------------------------------------------------------------

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# The tests build a wheel of their own and try it in clean environments, with and without extras.
wheel: setup ## build the wheel and try it in a clean environment
	@rm -rf dist
	@$(PY) -m build --no-isolation --outdir dist .
	@$(PY) -m pytest -q tests/house/test_wheel.py

release: check test-all wheel ## check everything, build, and tag the version of pyproject.toml
	@test -z "$$(git status --porcelain)" || { echo "commit first: the tree has changes"; exit 1; }
	@grep -q "^## $(VERSION)" CHANGELOG.md || { echo "CHANGELOG.md has no $(VERSION)"; exit 1; }
	@git tag --annotate "v$(VERSION)" --message "Tollgate $(VERSION)"
	@echo "Tagged v$(VERSION); push the tag and publish dist/"

# --- dependencies ----------------------------------------------------------------------------

# --no-config and the cleared variables keep this machine's index settings out of the locks. uv is
# pinned apart, because it installs the rest, and again in both locks, because a sync keeps it.
COMPILE := env -u UV_INDEX -u UV_INDEX_URL -u UV_DEFAULT_INDEX -u UV_EXTRA_INDEX_URL \
	-u UV_FIND_LINKS $(UV) pip compile --quiet --no-config --universal --generate-hashes \
	--no-header $(if $(UPGRADE),--upgrade)

lock: $(VENV)/.stamp-uv ## pin the dependencies again; UPGRADE=1 takes the newest versions
	@$(COMPILE) pyproject.toml requirements/uv.txt --all-extras \
		--group build --group dev --group peers --output-file requirements/dev.lock
	@$(COMPILE) pyproject.toml requirements/uv.txt --group build \
		--constraints requirements/dev.lock --output-file requirements/run.lock
