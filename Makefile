# Each target sets up what it needs by itself (.ci/env): .venv from requirements.lock, a JDK and Maven.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help test check demo soak bench bench-quick lock

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

# Three processes, each file of tests in one of them: on two cores, since most tests wait for something.
test: check ## style, types and every test but the long ones
	@.ci/env python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: ## style and types alone
	@.ci/env --python python -m ruff check .
	@.ci/env --python python -m ruff format --check .
	@.ci/env --python python -m mypy

demo: ## what works so far, on real data; NAMESRV_ADDR=host:port runs it on another cluster
	@.ci/env python examples/demo.py

soak: ## the long tests
	@.ci/env python -m pytest -m soak $(ARGS)

bench: ## every benchmark
	@.ci/env python -m benchmarks $(ARGS)

bench-quick: ## every benchmark, small
	@.ci/env python -m benchmarks --quick $(ARGS)

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	@uv pip compile --universal --python-version 3.11 --extra dev --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade pyproject.toml -o requirements.lock
