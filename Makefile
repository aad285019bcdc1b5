# SPDX-License-Identifier: Apache-2.0
#
# The commands for people; cmake does the work. `make help` lists them.

BUILD  ?= build/release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
# no: nothing is installed, see scripts/install-packages
DEPS   ?= yes
export DEPS

.PHONY: all configure demo test check bench bench-peers golden install format generate coverage clean help

all: configure
	@cmake --build $(BUILD) -j $(JOBS)

configure:
	@scripts/configure $(BUILD) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)

demo:
	@scripts/install-packages build
	@$(MAKE) --no-print-directory all
	@scripts/demo

test:
	@scripts/install-packages build
	@scripts/run-tests --build $(BUILD) --jobs $(JOBS)

check:
	@scripts/install-packages check
	@scripts/check --jobs $(JOBS)

bench:
	@scripts/install-packages bench
	@$(MAKE) --no-print-directory all
	@$(BUILD)/bench/cohort-bench

# PEERS="--turns 3 ..." are options of scripts/bench-peers. COHORT_PEERS names the folder of the virtual environments.
bench-peers:
	@scripts/install-packages peers
	@$(MAKE) --no-print-directory all
	@scripts/bench-peers --build $(BUILD) $(PEERS)

golden: all
	@$(BUILD)/tests/golden tests/golden

install: all
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

format:
	@scripts/format

# What is made from the sources and kept with them. The document comes last: it is made by a program of this tree.
generate:
	@scripts/make-sites
	@scripts/make-op-calls
	@scripts/include-graph --write
	@scripts/configure $(BUILD) -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)
	@cmake --build $(BUILD) -j $(JOBS) --target cohort_tool
	@$(BUILD)/tools/cohort ops --markdown >$(BUILD)/operators.md && cp $(BUILD)/operators.md docs/operators.md

coverage:
	@scripts/install-packages build
	@scripts/coverage --jobs $(JOBS) --all --branches 95 context strategy collective variable

clean:
	@rm -rf build

help:
	@echo "make            build the release tree in $(BUILD)"
	@echo "make demo       build, and train on handwritten digits"
	@echo "make test       build, and run every test"
	@echo "make check      run all checks that a change must pass: format, layers, headers, symbols,"
	@echo "                two compilers, sanitizers, a build of the core only, baseline kernels only, an installed copy"
	@echo "make bench      run all benchmarks; $(BUILD)/bench/cohort-bench NAME... runs some"
	@echo "make bench-peers  install TensorFlow and PyTorch outside the tree, train the same models with them in turns,"
	@echo "                and write docs/performance.md; scripts/bench-peers --help has its options, for PEERS=\"...\""
	@echo "make golden     compare with the values recorded from TensorFlow"
	@echo "make install    install under PREFIX=$(PREFIX)"
	@echo "make format     format the sources with clang-format"
	@echo "make generate   write the generated files: sites.h, op_calls.h, operators.md, the include graph"
	@echo "make coverage   measure line and branch coverage; requires 95 % of the branches of each of"
	@echo "                src/context, src/strategy, src/collective and src/variable"
	@echo "make clean      remove build/"
	@echo
	@echo "BUILD=, JOBS= and CMAKE_FLAGS=\"-DCOHORT_MPI=OFF ...\" change the build."
	@echo "demo, test, check, bench and coverage say which Debian packages are missing, and install them with apt-get"
	@echo "as root or with sudo; DEPS=no never installs anything."
