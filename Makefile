# Everything goes through a virtual environment of the project's own; PYTHON chooses the interpreter that makes it.
VENV := .venv
BIN  := $(VENV)/bin
CLIP := out/bikes.mp4

.PHONY: help demo test lint format bench test-gpu shaders wheel clean setup setup-test

help:
	@echo "make demo      detect and draw on a street clip: out/demo.mp4"
	@echo "make test      shaders, lint, types and all tests"
	@echo "make lint      ruff and mypy only;  make format  to format"
	@echo "make bench     Raven against the usual script, alternately"
	@echo "make test-gpu  the tests that a GPU is needed for, and those of the Vulkan layer on it"
	@echo "make wheel     dist/*.whl;  make clean"

setup:
	@scripts/bootstrap demo

setup-test:
	@scripts/bootstrap test

$(CLIP):
	@scripts/fetch_clip $(CLIP)

demo: setup $(CLIP)
	$(BIN)/raven run $(CLIP) -o out/demo.mp4

shaders: setup-test
	$(BIN)/python -m raven.gpu.compile_all

lint: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Shaders first: the workers would otherwise all compile them at once.
test: shaders lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

# One process: tests that time or share a GPU must not meet.
test-gpu: shaders
	$(BIN)/python -m pytest -m "gpu or not slow" -p no:xdist

bench: setup-test $(CLIP)
	$(BIN)/python benchmarks/compare.py $(CLIP) --out out/compare.json

wheel: setup-test
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

clean:
	rm -rf out dist build tests/_diff raven/gpu/spirv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find raven tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
