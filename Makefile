# `make demo` and `make test` need Python 3.11+ and make, nothing else: each makes .venv and installs into it.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
WORKERS ?= 3# one more than there are cores, since some tests wait
PYTEST := $(BIN)/python -m pytest
ARGS ?=
export PYTHONDONTWRITEBYTECODE :=# hundreds of tests start Python anew: what is compiled is kept, whatever the shell says

.PHONY: help demo browser docs test tests-in-parallel test-more lint format test-gpu sanitize soak conformance cupy-fuse numpy-suite autograd-suite gradbench jax-derivatives torch-tables tangent-suite optimization-suite mxnet-suite rank-faults golden bench bench-gpu bench-peers wheel-test clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

demo: $(VENV)/demo.stamp  ## run the demo on a photograph and an elevation model: pictures and a report go to demo-output/
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(VENV)/interop.stamp  ## lint and type-check, and beside that run every test that needs no GPU
	@$(MAKE) --no-print-directory -j 2 lint tests-in-parallel

tests-in-parallel:
	$(PYTEST) -n $(WORKERS) --dist worksteal $(ARGS)

test-more: $(VENV)/interop.stamp  ## the same tests, with ten times as many random examples
	@KERNELGRAPH_TEST_EXAMPLES=10 $(MAKE) --no-print-directory tests-in-parallel

browser:  ## install Chromium, in which the tests look at report pages, if there is none (Debian, Ubuntu)
	@for b in $(KERNELGRAPH_BROWSER) chromium chromium-headless-shell chromium-browser google-chrome; do \
		command -v $$b >/dev/null && exit; done; \
		{ sudo=$$(test $$(id -u) = 0 || echo sudo); $$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell; }

lint: $(VENV)/dev.stamp  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp  ## let ruff lay out the code and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-gpu: $(VENV)/cuda.stamp  ## the tests that need an NVIDIA GPU
	$(PYTEST) tests/gpu $(ARGS)

sanitize: $(VENV)/cuda.stamp  ## programs of every family of kernels under compute-sanitizer, on a GPU
	for tool in memcheck racecheck initcheck synccheck; do \
		compute-sanitizer --tool $$tool --report-api-errors no --error-exitcode 1 $(BIN)/python -m tests.sanitize || exit 1; done

conformance: $(VENV)/dev.stamp  ## the Array API standard's suite, from a checkout with its submodule: SUITE=path
	@test -d "$(SUITE)/array_api_tests" || { echo "write make conformance SUITE=path/to/array-api-tests" >&2; exit 1; }
	$(PIP) -r "$(SUITE)/requirements.txt"
	cd "$(SUITE)" && ARRAY_API_TESTS_MODULE=kernelgraph $(abspath $(BIN))/python -m pytest -q -n $(WORKERS) \
		--hypothesis-disable-deadline --xfails-file="$(CURDIR)/tests/conformance_exceptions.txt" \
		-p no:cacheprovider $(or $(ARGS),array_api_tests)

cupy-fuse: $(VENV)/dev.stamp  ## CuPy's own tests of cupy.fuse, with kernel_graph in its place: CUPY=path of a checkout
	$(BIN)/python -m tests.cupy_fuse "$(CUPY)" -n $(WORKERS) $(ARGS)

numpy-suite: $(VENV)/dev.stamp  ## each call in the installed NumPy's own tests made in a kernel_graph too (FILES: some of them; an hour)
	$(BIN)/python -m tests.numpy_suite $(FILES) $(ARGS)

autograd-suite: $(VENV)/dev.stamp  ## HIPS/autograd's own tests, with kg.vjp and kg.jvp in its place: AUTOGRAD=path of a checkout
	$(BIN)/python -m tests.autograd_suite "$(AUTOGRAD)" -n $(WORKERS) $(ARGS)

mxnet-suite: $(VENV)/interop.stamp  ## MXNet's own tests of its KVStore, dense keys, alone and on four ranks: MXNET=path of a checkout
	KERNELGRAPH_CPU_DEVICES=4 $(BIN)/python -m tests.mxnet_suite "$(MXNET)"
	$(BIN)/python -m kernelgraph.run -n 4 -m tests.mxnet_suite "$(MXNET)" dist_sync

rank-faults: $(VENV)/interop.stamp  ## 200 faults of ranks, as threads and as processes: who hangs, is told nothing, or blames another
	$(BIN)/python -m tests.rank_faults 200 threads $(ARGS)
	$(BIN)/python -m tests.rank_faults 200 mpi $(ARGS)

gradbench: $(VENV)/dev.stamp  ## GradBench's evaluations of gradients: GRADBENCH=path of a checkout, built as tests/gradbench.py says
	$(BIN)/python -m tests.gradbench "$(GRADBENCH)" $(ARGS)

jax-derivatives: $(VENV)/dev.stamp  ## JAX's table of derivatives, with kg.vjp and kg.jvp in its place: JAX=path of a checkout
	$(BIN)/python -m tests.jax_derivatives "$(JAX)" -n $(WORKERS) $(ARGS)

torch-tables: $(VENV)/dev.stamp  ## PyTorch's tables of convolutions and attention, through kg.nn
	$(BIN)/python -m tests.torch_tables $(ARGS)

tangent-suite: $(VENV)/dev.stamp  ## Tangent's own tests of gradients of NumPy functions: TANGENT=path of a checkout, with autograd installed
	$(BIN)/python -m tests.tangent_suite "$(TANGENT)" $(ARGS)

optimization-suite: $(VENV)/dev.stamp  ## gradients of SciPy's functions of global optimisation, beside differences: SCIPY=path of a checkout
	$(BIN)/python -m tests.optimization_suite "$(SCIPY)" $(ARGS)

golden: $(VENV)/dev.stamp  ## write golden files and printed text in the pages anew: read the diff
	$(PYTEST) tests/golden tests/end_to_end/test_readme.py tests/test_architecture.py --update-golden $(ARGS)

docs: $(VENV)/docs.stamp  ## the documentation as a site, with reports of the examples: build/docs/index.html
	@rm -rf docs/_reports build/docs && mkdir -p docs/_reports
	@$(BIN)/python examples/demo.py --output docs/_reports --repeat 1 >/dev/null
	@for e in examples/[0-9]*.py; do \
		$(BIN)/python -m kernelgraph report -o docs/_reports/$$(basename $$e .py).html $$e >/dev/null || exit 1; done
	$(BIN)/python -m sphinx -b html -q -W --keep-going docs build/docs
	$(BIN)/python -m tests.site_links build/docs

soak: $(VENV)/dev.stamp  ## 100,000 calls of mixed programs from 8 threads: wrong results, memory
	$(BIN)/python -m tests.soak $(ARGS)

bench: $(VENV)/dev.stamp  ## CPU benchmarks, beside the peers that are installed
	$(BIN)/python benchmarks/cpu.py $(ARGS)

bench-gpu: $(VENV)/cuda.stamp  ## GPU benchmarks
	$(BIN)/python benchmarks/gpu.py $(ARGS)

bench-peers: $(VENV)/peers.stamp  ## install the peers (numexpr, torch, jax), then run the CPU benchmarks
	$(BIN)/python benchmarks/cpu.py $(ARGS)

wheel-test: $(VENV)/dev.stamp  ## build sdist and wheel, install each into a fresh venv, run tests against what was installed
	.ci/wheel-test $(BIN)/python

clean:  ## remove everything that git does not track here
	rm -rf $(VENV) build dist demo-output *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "kernelgraph needs Python 3.11 or newer; try: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "on Debian: apt install python3-venv" >&2; exit 1; }

# One stamp for each set of extras; a change to pyproject.toml installs again.
$(VENV)/demo.stamp: EXTRAS := demo
$(VENV)/dev.stamp: EXTRAS := dev
$(VENV)/docs.stamp: EXTRAS := docs,demo
$(VENV)/cuda.stamp: EXTRAS := cuda,dev
$(VENV)/peers.stamp: EXTRAS := dev,peers
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV): $(EXTRAS) (a minute or two)" >&2
	@$(PIP) --editable ".[$(EXTRAS)]"
	@touch $@

# Where they cannot be had, their tests are skipped (in CI they fail). The indexes that pip is set up with come first.
$(VENV)/interop.stamp: tests/interop.txt $(VENV)/dev.stamp
	@{ $(PIP) -r $< 2>/dev/null || $(PIP) -r $< --extra-index-url https://download.pytorch.org/whl/cpu; } && touch $@ || \
		echo "not all of $< can be had: tests with what is missing are skipped" >&2
