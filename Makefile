# Each target sets up what it needs by itself (.ci/env): .venv from requirements.lock, a JDK and Maven.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help test quick durations check site release-check demo soak matrix bench bench-quick lock

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

# Each file of tests runs in one of several processes. Most tests wait for something, so that two cores are enough for
# three; those against Apache RocketMQ come after the others and in two, since each process boots clusters of its own.
PYTEST := python -m pytest --dist loadfile --no-loadscope-reorder
DURATIONS := build/durations
test: check ## style, types, the site, and every test but the long ones; ARGS='...' for pytest
ifdef ARGS
	@.ci/env --browser $(PYTEST) -n 2 $(ARGS)
else
	@.ci/env --browser $(PYTEST) -n 3 --durations-file $(DURATIONS)/ours.json --ignore=tests/interop
	@.ci/env $(PYTEST) -n 2 --durations-file $(DURATIONS)/interop.json tests/interop
endif

quick: ## the default tier alone: what is light, an attacker of each promise, a smoke test of each foreign party
	@.ci/env --browser $(PYTEST) -n 3 --tier default

durations: ## write tests/durations.json, by which tiers are chosen, from the last make test
	@.ci/env --python python -m tests.support.tiers $(DURATIONS)/ours.json $(DURATIONS)/interop.json

check: ## style, types and the site of documentation alone
	@.ci/env --python python -m ruff check .
	@.ci/env --python python -m ruff format --check .
	@.ci/env --python python -m mypy
	@NO_MKDOCS_2_WARNING=1 .ci/env --python python -m mkdocs build --quiet --strict

site: ## the site of documentation, into build/site
	@NO_MKDOCS_2_WARNING=1 .ci/env --python python -m mkdocs build --strict

demo: ## what works so far, on real data; NAMESRV_ADDR=host:port runs it on another cluster
	@.ci/env python examples/demo.py

soak: ## the long tests
	@.ci/env python -m pytest -m soak $(ARGS)

matrix: ## the Spark tests on every release of PySpark, for the table in docs/spark-releases.md; ARGS='4.2.1' for some
	@.ci/env python -m tests.support.releases $(ARGS)

bench: ## every benchmark
	@.ci/env python -m benchmarks $(ARGS)

bench-quick: ## every benchmark, small
	@.ci/env python -m benchmarks --quick $(ARGS)

release-check: ## wheel and sdist, built, checked, and tried in fresh environments
	@.ci/env .ci/release-check

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	@uv pip compile --universal --python-version 3.11 --extra dev --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade pyproject.toml -o requirements.lock
