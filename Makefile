# Each target sets up what it needs by itself (.ci/env): .venv from requirements.lock, a JDK and Maven, databases.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help quick native native-if-possible test test-all test-rest pure class-archives rewritten durations check site release-check demo soak fuzz matrix findings bench bench-quick lock

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

# Each file of tests runs in one of three processes (`FilesByParty` in conftest.py). Most tests wait for something, so that
# two cores are enough; with four processes the load went to 19, and tests with real brokers and Spark failed.
PYTEST := python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
DURATIONS := build/durations
# The tests that need neither a JDK nor a browser: rungs 1 to 3 of the ladder. One file without ARGS's processes is sooner.
QUICK := -m 'not soak and not interop and not spark and not browser'
quick: ## tests that need Python alone: make quick ARGS=tests/client/test_retry_policy.py, or all in some minutes
ifdef ARGS
	@.ci/env --python python -m pytest -q $(QUICK) $(ARGS)
else
	@.ci/env --python $(PYTEST) $(QUICK) --tier default
endif

native: ## the wheel of the compiled decoder, into build/native (needs cargo), and its lint
	@.ci/env --python python -m tests.support.native_build --lint

native-if-possible: # without cargo, the tests of the compiled decoder are skipped
	@.ci/env --python python -m tests.support.native_build --if-possible

test: check native-if-possible ## style, types and the default tier of the tests, in some 8 minutes; ARGS='...' for pytest instead
ifdef ARGS
	@.ci/env --browser $(PYTEST) $(ARGS)
else
	@.ci/env --browser $(PYTEST) --tier default --durations-file $(DURATIONS)/default.json
endif

test-all: ## every test but the long ones: make test, then make test-rest
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

test-rest: site pure class-archives ## what make test-all adds to make test: the site, the pure rooms, the other tier
	@.ci/env --browser --databases --go $(PYTEST) --tier rest --without '$(PURE_TESTS)' --durations-file $(DURATIONS)/rest.json

class-archives: # no fault without them; made once in .venv/classes, by which Spark and Apache's servers start sooner
	-@.ci/env python -m tests.support.class_archives

# The rooms without sockets, and the tests that cover them without a process of their own: pyproject.toml has the floor.
PURE := protocol servers.protocol servers.nameserver.tables filtering servers.broker.store client.routing client.consumer.rebalance.strategies
PURE_TESTS := tests/protocol tests/filtering $(addprefix tests/servers/nameserver/test_,tables_*.py accepted.py golden.py) \
  $(addprefix tests/client/test_,allocation.py routing.py fault_latency.py) \
  $(addprefix tests/servers/broker/test_,batch_topics.py clock*.py damaged_stores.py disk_files.py failed_syncs.py \
  held_pulls.py index_hashes.py key_*.py killed_removals.py log_copy.py put_groups.py removal.py retention.py \
  start_work.py store_*.py tables.py tables_on_disk.py replay.py)
pure: ## the tests of the pure rooms, and the floor of their coverage
	@.ci/env --python $(PYTEST) --cov-config=pyproject.toml \
	  $(PURE:%=--cov=pyrmq_core.%) --cov-report=term:skip-covered --durations-file $(DURATIONS)/pure.json $(PURE_TESTS)

rewritten: # no fault without it: pytest keeps the tests' modules with their assertions rewritten
	-@.ci/env --python python -m pytest --collect-only -q >/dev/null

durations: ## write tests/durations.json, by which tiers are chosen, from the last make test-all
	@.ci/env --python python -m tests.support.tiers $(DURATIONS)/pure.json $(DURATIONS)/default.json $(DURATIONS)/rest.json

check: ## style and types alone
	@.ci/env --python python -m ruff check .
	@.ci/env --python python -m ruff format --check .
	@.ci/env --python python -m mypy

site: ## the site of documentation, into build/site
	@NO_MKDOCS_2_WARNING=1 .ci/env --python python -m mkdocs build --quiet --strict

demo: ## what works so far, on real data; NAMESRV_ADDR=host:port runs it on another cluster
	@.ci/env python examples/demo.py

soak: ## the long tests, and properties with examples of other seeds
	@.ci/env --databases --go python -m pytest -m 'soak or (hypothesis and not interop and not spark and not browser)' \
	  --hypothesis-profile=random $(ARGS)

fuzz: native-if-possible ## inputs that coverage guides, for every parser of bytes from others; MINUTES=60 by default, ARGS='SQL' for some
	@.ci/env --python python -m tests.hostile.guided_fuzzing $(or $(MINUTES),60) $(ARGS)

matrix: ## the Spark tests on every release of PySpark, into build/matrix/results.md; ARGS='4.2.1' for some
	@.ci/env python -m tests.support.releases $(ARGS)

findings: ## what surprised us in outside software, run again: each program of findings/ ends with 0 if it is still so
	@mkdir -p build; ended=0; for program in $(or $(ARGS),findings/*.sh); do \
	  "$$program" >build/findings.log 2>&1; status=$$?; echo "$$status $$program"; \
	  [ $$status = 0 ] || { tail -n 5 build/findings.log; ended=1; }; done; exit $$ended

bench: ## every benchmark
	@.ci/env python -m benchmarks $(ARGS)

bench-quick: ## every benchmark, small
	@.ci/env python -m benchmarks --quick $(ARGS)

release-check: ## wheel and sdist, built, checked, and tried in fresh environments
	@.ci/env .ci/release-check

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	@uv pip compile --universal --python-version 3.11 --extra dev --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade pyproject.toml -o requirements.lock
