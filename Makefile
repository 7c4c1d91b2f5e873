# Everything a contributor runs; `make` lists it. The second time, only what changed is built.

VENV := .venv
BIN := $(VENV)/bin
# What the demo needs to be built and run, and all that anything else here needs.
BASICS := $(VENV)/.basics
DEPENDENCIES := $(VENV)/.dependencies
PACKAGE := $(VENV)/.built
BUILT := $(PACKAGE) $(DEPENDENCIES)
VERSITYGW := v1.8.0
TOXIPROXY := v2.12.0
AZURITE := 3.35.0
HEADLINES := $(foreach load,write-raw-one write-zstd-one read-raw-one read-zstd-one,\
    $(foreach row,UcxStore-memory-zero-copy-local UcxStore-memory-zero-copy-shared-memory \
        UcxStore-memory-zero-copy-TCP LocalStore-default FsspecStore-s3fs-default,$(load)-$(row)))
# It tells of a successor each time.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
WHEELS := build/wheels/venv
ZARR2 := build/zarr2
ZARR := $(shell sed -n 's/^zarr==//p' constraints.txt)
ZARR_SOURCE := build/zarr-$(ZARR)
ZARR_NEXT := build/zarr-next
CXX_FILES := $(wildcard native/*/*.[ch]pp)
CXX_TESTS := $(wildcard tests/native/*.[ch]pp benchmarks/*.cpp benchmarks/network/*.[ch]pp)
STUBGEN := $(BIN)/python -m nanobind.stubgen --quiet --module ucxstore._core --output-file
KEYWORDS := ucxstore/server/options/keywords.py

# Two for each core, since most tests wait half of their time: for peers that are killed, for
# timeouts, for processes to start. Beyond that, starting workers costs more than they save.
JOBS := $(shell echo $$((2 * $$(nproc) < 8 ? 2 * $$(nproc) : 8)))
PARALLEL := --numprocesses $(JOBS) --dist worksteal
AGAIN := $(if $(RETRY),scripts/again)
PATIENT := --timeout 3600 --override-ini faulthandler_timeout=3660

# Where tests need more than the package: other hosts, clusters, peers that die, other libraries, the
# documentation. They take as long as all others.
SYSTEM := $(addprefix tests/,adversity benchmarks copies dask deploy docs durability ecosystem \
    examples faults hosts neighbours packaging profiles)

# ON compiles many files as one: all of them in half the time, but after a change of one file those
# beside it, too.
UNITY ?= OFF

MAKEFLAGS += --no-print-directory
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
# Where images of containers set it, every process that a test starts would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
# Its threads spin while they wait, in each of the many processes that tests start.
test-python test-system test-python-full test-python-nightly: export OPENBLAS_NUM_THREADS ?= 1

# Where there is ccache, what was compiled before is not compiled again, in other clones neither.
ifneq ($(shell command -v ccache),)
$(PACKAGE) test-address test-thread: export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
endif

.DEFAULT_GOAL := help
.PHONY: help build venv demo test test-full test-nightly test-python test-python-full \
        test-python-nightly test-system test-loaded test-zarr test-zarr-all test-zarr-nightly \
        test-zarr-next test-zarr-next-ours test-zarr-next-zarrs test-neighbours zarr-tests \
        test-native test-address test-thread faults simulate greedy coverage bench \
        bench-against copies flamegraphs docs docs-serve docs-publish newcomer s3 azure zarr2 \
        lint lint-python lint-native lint-stubs tidy format stubs wheels check-wheel release \
        clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: $(BUILT) ## Create .venv and build the package into it (make PYTHON=... picks the Python)

venv: $(DEPENDENCIES) ## Create .venv with the tools, without the package

$(VENV)/pyvenv.cfg:
	python=$$(scripts/find-python) && "$$python" -m venv $(VENV)

$(BASICS): pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	scripts/install --group build --requirements pyproject.toml --extra demo
	touch $@

$(DEPENDENCIES): $(BASICS)
	scripts/install --group dev --requirements pyproject.toml \
	    --extra demo --extra copies --extra url --extra tools
	touch $@

$(PACKAGE): $(BASICS) $(CXX_FILES) CMakeLists.txt $(wildcard cmake/*)
	$(BIN)/python -m pip --quiet install --no-deps --no-build-isolation \
	    --config-settings build-dir=build/package \
	    --config-settings cmake.define.UCXSTORE_UNITY=$(UNITY) --editable .
	touch $@

demo: UNITY := ON
demo: $(PACKAGE) ## Run the main job on real data: write, read back in another process, compare
	$(BIN)/ucxstore demo

test: $(BUILT) ## Run the tests of the package (a failing part does not stop the others)
	+scripts/run-parts test-python test-zarr

test-full: $(BUILT) ## Run every test: all examples, large sizes, all of zarr's own, C++ under ASan, TSan
	+scripts/run-parts test-python-full test-zarr-all test-neighbours test-native

test-nightly: $(BUILT) ## Run the Hypothesis tests with many more examples, drawn at random
	+scripts/run-parts test-python-nightly test-zarr-nightly

test-loaded: $(BUILT) ## Run make test five times beside a load on every core
	+scripts/loaded 5 test

test-python: $(BUILT) ## Run the Python tests (make test-python PYTEST_ARGS="-k store")
	$(AGAIN) $(BIN)/pytest $(PARALLEL) -m 'not full' $(if $(COVERAGE),--cov --cov-report=) \
	    $(SYSTEM:%=--ignore=%) $(PYTEST_ARGS)

test-system: $(BUILT) ## Run the tests of the whole: peers that die, hosts, clusters, other libraries
	$(AGAIN) $(BIN)/pytest $(PARALLEL) -m 'not full' $(SYSTEM) $(PYTEST_ARGS)

test-python-full: export HYPOTHESIS_PROFILE := full
test-python-full: $(BUILT) s3 azure zarr2 ## Run all Python tests, in their full size
	$(BIN)/pytest $(PARALLEL) --full $(PATIENT) $(PYTEST_ARGS)

test-python-nightly: export HYPOTHESIS_PROFILE := nightly
test-python-nightly: $(BUILT)
	$(BIN)/pytest $(PARALLEL) -m hypothesis $(PATIENT) $(PYTEST_ARGS)

faults: SOURCE ?= directory
faults: SECONDS ?= 600
faults: DECODED ?=
faults: $(BUILT) s3 ## Random faults under load (make faults SOURCE=memory SECONDS=60; needs Go)
	$(BIN)/python -m tests.faults --source $(SOURCE) --seconds $(SECONDS) \
	    $(if $(DECODED),--decoded)

greedy: SECONDS ?= 60
greedy: $(BUILT) ## Greedy clients beside honest ones (make greedy SECONDS=60; some twenty minutes)
	$(BIN)/python -m tests.adversity.greedy --seconds $(SECONDS)

simulate: SECONDS ?= 600
simulate: PROCESSES ?= $(shell nproc)
simulate: $(BUILT) ## Simulate servers of one source, by chance and in every order (SECONDS=60 PROCESSES=2)
	$(BIN)/python -m tests.simulator --seconds $(SECONDS) --processes $(PROCESSES) \
	    --start $$(date +%s)000
	$(BIN)/python -m tests.simulator --every --processes $(PROCESSES)

test-zarr: $(BUILT) zarr-tests ## Run zarr's own tests of arrays and codecs on our store and pipeline
	scripts/zarr-tests $(ZARR_SOURCE) arrays $(PARALLEL) $(PYTEST_ARGS)

test-zarr-all: $(BUILT) zarr-tests ## Run zarr's other tests on them, too
	scripts/zarr-tests $(ZARR_SOURCE) all $(PARALLEL) $(PYTEST_ARGS)

test-zarr-nightly: export HYPOTHESIS_PROFILE := nightly
test-zarr-nightly: $(BUILT) zarr-tests
	scripts/zarr-tests $(ZARR_SOURCE) all $(PARALLEL) --run-slow-hypothesis --timeout 3600 \
	    -k 'properties or stateful or equivalence'

test-neighbours: $(BUILT) $(VENV)/.neighbours ## Run the tests of zarr that xarray, dask and cubed have, on our store
	$(BIN)/python -m tests.neighbours -- $(PARALLEL) $(PYTEST_ARGS)

$(VENV)/.neighbours: $(DEPENDENCIES)
	scripts/install --group neighbour-tests
	touch $@

# Laid over what .venv has, so that nothing is built for it. A range that begins with a
# development release takes those and release candidates, of zarr alone.
test-zarr-next: NEXT := zarr>=$(ZARR).dev0
test-zarr-next: $(BUILT) ## Run tests with the newest zarr (make test-zarr-next NEXT='zarr==3.4.1')
	rm -rf $(ZARR_NEXT)
	$(BIN)/python -m pip --quiet install --target $(ZARR_NEXT) '$(NEXT)'
	+PYTHONPATH=$(CURDIR)/$(ZARR_NEXT) scripts/run-parts test-zarr-next-ours test-zarr-next-zarrs

test-zarr-next-ours:
	$(BIN)/python -c 'import zarr; print("zarr", zarr.__version__, zarr.__file__)'
	$(BIN)/python -m pytest $(PARALLEL) -m 'not full' tests/obspec tests/stores \
	    tests/pipeline $(PYTEST_ARGS)

test-zarr-next-zarrs:
	version=$$($(BIN)/python -c 'import zarr; print(zarr.__version__)'); \
	    make zarr-tests ZARR=$$version && \
	    scripts/zarr-tests build/zarr-$$version arrays $(PARALLEL) $(PYTEST_ARGS)

zarr-tests: $(ZARR_SOURCE)/PKG-INFO ## Download zarr's tests, which are in its source distribution

$(ZARR_SOURCE)/PKG-INFO: | $(DEPENDENCIES)
	$(BIN)/python -m pip --quiet download --no-deps --no-binary zarr --dest build zarr==$(ZARR)
	tar -xzf $(ZARR_SOURCE).tar.gz -C build

test-native: export UCXSTORE_FULL_TESTS := 1
test-native: test-address test-thread ## Run the C++ tests under ASan and UBSan, then under TSan

test-address: SANITIZE := address,undefined
test-thread: SANITIZE := thread
test-address test-thread: $(DEPENDENCIES)
	scripts/need-gtest
	$(BIN)/cmake -S . -B build/$@ -DUCXSTORE_NATIVE_TESTS=ON -DUCXSTORE_SANITIZE=$(SANITIZE) \
	    -DUCXSTORE_COVERAGE=$(if $(COVERAGE),ON,OFF) -DUCXSTORE_UNITY=$(UNITY) \
	    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python
	$(BIN)/cmake --build build/$@
	$(BIN)/ctest --test-dir build/$@ --output-on-failure --no-tests=error --parallel $(JOBS) \
	    $(if $(AGAIN),--repeat until-pass:2)

coverage: $(DEPENDENCIES) ## Print the share of lines that `make test test-address COVERAGE=1` has run
	@printf 'Python, without child processes: %s %%\n' "$$($(BIN)/coverage report --format=total)"
	@$(BIN)/gcovr --root . --filter native/ --txt-metric line --print-summary --txt build/coverage.txt \
	    --gcov-ignore-parse-errors=negative_hits.warn build/test-address | sed 's/^/C++, /'

bench: $(BUILT) s3 ## Run the benchmarks (make bench BENCH_ARGS="--only grid")
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-against: $(BUILT) s3 ## Compare with another built checkout (make bench-against OTHER=../old)
	$(BIN)/python -m benchmarks.against $(OTHER) $(BENCH_ARGS)

copies: $(BUILT) s3 zarr2 ## Count the copies of every store (make copies COPIES_ARGS="--quick")
	$(BIN)/python -m profiles --resume $(COPIES_ARGS)

flamegraphs: $(HEADLINES:%=flamegraphs/%.html) ## Draw the flamegraphs of docs/copies.md

flamegraphs/%.html: build/profiles/%.bin
	$(BIN)/python scripts/flamegraph $< $@

# WHEEL= takes another one than the newest in dist/; without any, what this checkout has.
newcomer: $(BUILT) ## Follow the tutorial of two machines between two namespaces, and print the time
	$(BIN)/python scripts/newcomer $(WHEEL)

# UCXSTORE_REPOSITORY= is what its link to the repository leads to. Without it there is no such link.
docs: $(DEPENDENCIES) ## Build the site of the documentation into build/site, and check its links
	$(MKDOCS) build

docs-serve: $(DEPENDENCIES) ## Serve the site on this machine, and build it anew as pages change
	$(MKDOCS) serve --no-strict

docs-publish: $(DEPENDENCIES) ## Publish the site to the branch gh-pages of this repository's remote
	$(MKDOCS) gh-deploy --message 'Publish the site of {sha}'

s3: ## Build an S3 server, and a proxy that delays it, for tests and figures (needs Go)
	@if command -v go >/dev/null; then $(MAKE) build/s3/versitygw build/s3/toxiproxy; else \
	    echo 'Go is missing, so no versitygw is built. Instead, what there is of these is used: the' \
	        'address in UCXSTORE_S3_ENDPOINT, a versitygw or minio on PATH, moto. And no toxiproxy,' \
	        'so what needs a server that is far away is not measured'; fi

# The second file is there for its name alone: another version is built anew.
build/s3/versitygw: build/s3/.versitygw-$(VERSITYGW)
	CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -mod=mod" GOBIN=$(CURDIR)/$(@D) go install \
	    -ldflags '-s -w -X main.Version=$(VERSITYGW)' \
	    github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)
	touch $@

build/s3/.versitygw-$(VERSITYGW):
	mkdir -p $(@D)
	rm -f $(@D)/.versitygw-*
	touch $@

build/s3/toxiproxy: build/s3/.toxiproxy-$(TOXIPROXY)
	CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -mod=mod" GOBIN=$(CURDIR)/$(@D) go install -ldflags '-s -w' \
	    github.com/Shopify/toxiproxy/v2/cmd/server@$(TOXIPROXY)
	mv $(@D)/server $@
	touch $@

build/s3/.toxiproxy-$(TOXIPROXY):
	mkdir -p $(@D)
	rm -f $(@D)/.toxiproxy-*
	touch $@

azure: ## Install Azurite, which az:// is tested with (needs npm)
	@if command -v npm >/dev/null; then $(MAKE) build/azure/.azurite-$(AZURITE); else \
	    echo 'npm is missing, so there is no Azurite, and az:// is not tested'; fi

build/azure/.azurite-$(AZURITE):
	rm -rf $(@D)
	mkdir -p $(@D)
	npm install --prefix $(@D) --no-audit --no-fund --ignore-scripts azurite@$(AZURITE)
	touch $@

zarr2: $(ZARR2)/.dependencies ## Make the environment of zarr 2 for the copy figures

# Python 3.14 is too new: no numcodecs that zarr 2 can use has wheels for it.
$(ZARR2)/.dependencies: constraints-zarr2.txt
	python=$$(scripts/find-python 3.14) && "$$python" -m venv --clear $(ZARR2)
	$(ZARR2)/bin/python -m pip --quiet install --constraint $< --upgrade pip
	$(ZARR2)/bin/python -m pip --quiet install --constraint $< \
	    fsspec memray numcodecs numpy s3fs zarr
	touch $@

lint: lint-python lint-native lint-stubs ## Check format, lint, types and what is generated

lint-python: $(BUILT)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/vulture

lint-native: $(DEPENDENCIES)
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES) $(CXX_TESTS)
	$(MAKE) tidy

lint-stubs: $(BUILT)
	$(STUBGEN) build/_core.pyi
	$(BIN)/python -m tests.options_keywords build/keywords.py
	diff -u ucxstore/_core.pyi build/_core.pyi && diff -u $(KEYWORDS) build/keywords.py || \
	    { echo 'stale: run `make stubs`'; exit 1; }

tidy: $(DEPENDENCIES) ## Look for bugs and locks not held in the native core (make tidy FOLDERS=shared)
	$(BIN)/python scripts/tidy $(FOLDERS)

format: $(DEPENDENCIES) ## Format the sources and fix what ruff can
	$(BIN)/clang-format -i $(CXX_FILES) $(CXX_TESTS)
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

stubs: $(BUILT) ## Generate the stub of the core, keywords of options, and pages of the reference
	$(STUBGEN) ucxstore/_core.pyi
	$(BIN)/python -m tests.options_keywords $(KEYWORDS)
	$(BIN)/python -m tests.options_page
	$(BIN)/python -m tests.store_options_page
	$(BIN)/python -m tests.counters_page
	$(BIN)/python -m ucxstore.cli.reference > docs/reference/cli.md

wheels: ARCH ?= $(shell uname -m)
wheels: $(WHEELS)/.dependencies ## Build sdist and manylinux wheel into dist (make wheels ARCH=aarch64)
	$(WHEELS)/bin/python packaging/wheels/build.py --arch $(ARCH)

# An environment of its own: .venv has the tools of tests and benchmarks, too, which are 2 GB.
$(WHEELS)/.dependencies: pyproject.toml constraints.txt
	python=$$(scripts/find-python) && "$$python" -m venv --clear $(WHEELS)
	VENV=$(WHEELS) scripts/install --group wheels
	touch $@

check-wheel: wheels ## Install the wheel without a compiler, for several Pythons, and run the demo
	$(WHEELS)/bin/python packaging/wheels/check.py $(if $(ALLOW_MISSING),--allow-missing)

release: ARCHS ?= x86_64 aarch64
release: $(WHEELS)/.dependencies ## Make all of a release, as a dry run (make release PUBLISH=1 publishes it)
	+$(WHEELS)/bin/python packaging/release.py $(ARCHS:%=--arch %) $(if $(IMAGE),--image $(IMAGE)) \
	    $(if $(PUBLISH),--publish)

clean: ## Remove .venv and everything built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
