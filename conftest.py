"""What every test runs under: no setting of the machine, and no pass by being skipped."""

import os
from collections.abc import Generator

import hypothesis
import pytest

os.environ.pop("NAMESRV_ADDR", None)

# No example is failed for being slow: machines are shared, and the test as a whole has its time-out.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With PYRMQ_REQUIRE_INTEROP=1 a skipped test that needs the real thing is a failed one."""
    report = yield
    needs_the_real_thing = item.get_closest_marker("interop") or item.get_closest_marker("spark")
    if report.skipped and needs_the_real_thing and os.environ.get("PYRMQ_REQUIRE_INTEROP") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"PYRMQ_REQUIRE_INTEROP=1, yet: {reason}"
    return report
