# Everything runs in a virtual environment of its own, .venv, which is made when it is first needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types docs package sanitize fuzz faults bench arm64 clean

help:  ## List the targets
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## Make .venv and install n3net into it

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/n3net/kernel/*.cpp src/n3net/kernel/*.inc)
	@echo "Installing n3net into $(VENV) (the first time fetches PyTorch, a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar on -c constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar on -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## Denoise a photograph, and draw how neighbours are chosen
	$(BIN)/n3net demo

lint: $(STAMP)  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

test: lint types  ## Check style and types, and run all tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses=4

docs: $(STAMP)  ## Make the site, build/site/index.html, which needs no network; a warning is an error
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

package: $(STAMP)  ## Make sdist and wheel in dist/, check them, and try the wheel in an environment of its own
	$(BIN)/python tests/package.py dist

SANITIZED := tests/kernel/test_safety.py tests/neighbors/test_limits.py tests/neighbors/test_backends.py tests/kernel/test_convolution.py tests/neighbors/test_parts.py \
	-k "not prepared"

sanitize: $(STAMP)  ## Test the kernel under AddressSanitizer and UndefinedBehaviorSanitizer, with registers of any width
	for bytes in 16 32 64; do $(BIN)/python tests/kernel/sanitize.py build $$bytes 1 $(SANITIZED) || exit 1; done

FUZZ ?= --seconds 300

fuzz: $(STAMP)  ## Give changed files to everything that reads files; findings join the corpus (FUZZ="--seconds 3600 image")
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

FAULTS ?= --moments 100

faults: $(STAMP)  ## Kill, fill disks, take away folders and memory, for real, and count the damage (FAULTS="--only disk")
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults.py $(FAULTS)
	OMP_NUM_THREADS=1 $(BIN)/python tests/jobs/faults.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/training/elastic.py

bench: $(STAMP)  ## Measure speed and memory, as ratios
	$(BIN)/n3net bench

ARM64_CXX ?= aarch64-linux-gnu-g++
ARM64_RUN ?= qemu-aarch64 -L /usr/aarch64-linux-gnu
SELFTEST := -std=c++17 -O3 -fno-math-errno -fno-trapping-math -pthread tests/kernel/selftest.cpp -o build/selftest

arm64:  ## Test the kernel without Python, here and for arm64 by a cross compiler and qemu
	@mkdir -p build
	$(CXX) $(SELFTEST)
	build/selftest
	@if ! command -v $(firstword $(ARM64_CXX)) >/dev/null; then \
		echo "arm64: skipped, no $(firstword $(ARM64_CXX)) (Debian: apt-get install g++-aarch64-linux-gnu)"; \
	elif ! command -v $(firstword $(ARM64_RUN)) >/dev/null; then \
		echo "arm64: skipped, no $(firstword $(ARM64_RUN)) (Debian: apt-get install qemu-user)"; \
	else \
		echo "$(ARM64_CXX) $(SELFTEST)-arm64"; \
		$(ARM64_CXX) $(SELFTEST)-arm64 && $(ARM64_RUN) build/selftest-arm64; \
	fi

clean:  ## Remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache src/*.egg-info src/n3net/*.so src/n3net/kernel/*.so
