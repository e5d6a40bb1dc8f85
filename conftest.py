"""What every test runs under: no setting of the machine, and no pass by being skipped."""

import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

os.environ.pop("NAMESRV_ADDR", None)
# No Java of a test, Spark's neither, lives long enough to repay the second compiler or threads that collect garbage.
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# No example is failed for being slow: machines are shared, and the test as a whole has its time-out.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

TESTS = Path(__file__).parent / "tests"
# The files that take longest, in this order: several processes run a file each, and one that starts last ends last.
LONGEST = (
    "spark/test_killed_streams.py",
    "chaos/test_planted.py",
    "chaos/test_runs.py",
    "spark/test_where_it_runs.py",
    "cli/test_ends.py",
    "spark/test_streams.py",
    "spark/test_streams_over_changes.py",
    "spark/test_examples.py",
    "spark/test_batches.py",
    "spark/test_bad_input.py",
    "spark/test_stream_changes.py",
    "spark/test_cancelled_tasks.py",
    "spark/test_line_at_the_end.py",
    "spark/test_batch_topics.py",
    "hostile/test_every_request.py",
    "hostile/test_broker_tables.py",
    "hostile/test_harm_to_others.py",
    "nameserver/test_long_work.py",
    "cli/test_tail_and_send.py",
    "interop/test_spark_streams.py",
    "interop/test_our_slaves.py",
    "interop/test_slaves.py",
    "interop/test_spark_batches.py",
    "interop/test_store_files.py",
    "interop/test_harness.py",
    "interop/test_batch_topics.py",
    "interop/test_nameserver.py",
    "interop/test_sync_masters.py",
    "interop/test_commands_beside_mqadmin.py",
    "interop/test_security.py",
    "interop/test_producer.py",
    "interop/test_acting_master.py",
    "interop/test_client_failures.py",
    "interop/test_access_control.py",
    "interop/test_reading_from_slaves.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves the longest files to the front; those of `tests/interop` then go behind all others."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    assert all(map(Path.is_file, places)), "LONGEST in conftest.py names a file that is gone"
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With PYRMQ_REQUIRE_INTEROP=1 a skipped test that needs the real thing is a failed one."""
    report = yield
    needs_the_real_thing = any(map(item.get_closest_marker, ("interop", "spark", "browser")))
    if report.skipped and needs_the_real_thing and os.environ.get("PYRMQ_REQUIRE_INTEROP") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"PYRMQ_REQUIRE_INTEROP=1, yet: {reason}"
    return report
