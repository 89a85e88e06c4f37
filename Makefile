# One command for each thing a reader does. `make run`, `make test` and `make lab` set up what is missing first.
PYTHON ?= python3
# gpu needs the CUDA toolkit (pycuda compiles against it); everything else is cpu. Override: make run EXTRAS=gpu
EXTRAS ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && command -v nvcc >/dev/null 2>&1 && echo gpu || echo cpu)
BIN := .venv/bin
STAMP := .venv/.ready-$(EXTRAS)

.PHONY: setup run test check lab bench build clean

setup: $(STAMP)

$(STAMP): pyproject.toml data/assets.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 15) else "Python 3.11 to 3.14 is needed; this is " + sys.version.split()[0] + ". Try: make setup PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e '.[$(EXTRAS),dev]'
	$(BIN)/python -m pip install -q --no-deps --upgrade --target .venv/stubs tensorrt-stubs==10.13.0.35.1  # its types alone: it would bring TensorRT
	sed -i.orig -E 's/([(, ])in: /\1in_: /; s/channel_axis: int\)/channel_axis: int = 0)/' .venv/stubs/tensorrt_bindings/tensorrt.pyi  # two slips that mypy stops at
	$(BIN)/accel fetch
	@rm -f .venv/.ready-* && touch $@

run: setup
	$(BIN)/accel run

test: setup
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python notebooks/build.py --check

lab: setup
	$(BIN)/jupyter lab --ip=127.0.0.1 $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/00_environment.ipynb

bench: setup
	$(BIN)/python benchmarks/road.py

build: setup
	$(BIN)/python notebooks/build.py

clean:
	rm -rf .venv data/store out
