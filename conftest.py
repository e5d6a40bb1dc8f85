"""The rules of every test: no setting of the machine, and no pass by being skipped."""

import json
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.support import class_archives, tiers

os.environ.pop("NAMESRV_ADDR", None)
# The pure decoder runs, whatever is installed; the fixture `each_decoder` has the compiled one run, too.
os.environ["PYRMQ_NATIVE"] = "0"
# The 5 s of a command's request are few where twenty processes share two cores.
os.environ["PYRMQ_TIMEOUT"] = "60"
# A run in the background, or under nohup, begins with these ignored, and so would the programs that tests start.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
# Other servers than Spark name an archive of their own, or pass over this one.
os.environ["JDK_JAVA_OPTIONS"] = " ".join([*class_archives.QUICK, *class_archives.mapped(class_archives.SPARK)])
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "tests" / "support" / "spark_conf")

# No example is failed for being slow: machines are shared, and the test as a whole has its time-out. Beside the same
# other tests a test has the same examples, so that it is red for the next one, too; `make soak` draws others (random).
TIMELESS = hypothesis.settings(deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("quick", TIMELESS, max_examples=25)
hypothesis.settings.register_profile("random", TIMELESS, max_examples=200, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("quick")

DEFAULT_SECONDS = pytest.StashKey[float]()
MISSING_SMOKE = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "tiers of the suite (tests/support/tiers.py)")
    group.addoption("--tier", choices=("default", "rest"), help="only this tier's tests; without it, every test")
    group.addoption("--without", default="", help="paths of files or folders whose tests are left out of the tier")
    group.addoption("--durations-file", type=Path, help="write the seconds of each test to this file")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the chosen tier, the files that take longest first: a process that starts one last would end last."""
    durations = tiers.read_durations()
    tests = {tiers.suite_test(item): item for item in items}
    default = tiers.default_tier(tests, durations, tiers.promised_tests(tiers.GUARANTEES.read_text()))
    ids, files = {test.id for test in tests}, {test.file for test in tests}
    config.stash[MISSING_SMOKE] = [
        name for name in tiers.SMOKE.values() if name not in ids and name.partition("::")[0] in files
    ]
    config.stash[DEFAULT_SECONDS] = tiers.seconds_of(default, durations)
    if (tier := config.getoption("tier")) is not None:
        chosen = default if tier == "default" else tests.keys() - default
        chosen = {test for test in chosen if not test.is_below(config.getoption("without").split())}
        config.hook.pytest_deselected(items=[item for test, item in tests.items() if test not in chosen])
        tests = {test: item for test, item in tests.items() if test in chosen}
    items[:] = [tests[test] for test in sorted(tests, key=lambda test: -durations.get(test.file, 0.0))]


class FilesByParty(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Whole files for each process, which begins with those of one foreign party (`tiers.next_file`)."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(tiers.next_file(self.workqueue, node.gateway.id), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesByParty | None:
    return FilesByParty(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("durations_file")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder(file))


class DurationRecorder:
    """Adds up the seconds of each test, its fixtures included, and writes them down at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds_by_test: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds_by_test[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._seconds_by_test))


@pytest.fixture(scope="module", autouse=True)
def no_clients_of_a_driver() -> Iterator[None]:
    """Closes behind each file the clients that a Spark driver keeps: they log of servers that have ended since."""
    yield
    if (worker := sys.modules.get("pyrmq_spark.worker")) is not None:
        worker.close()


def encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With PYRMQ_REQUIRE_INTEROP=1 a skipped test that needs the real thing is a failed one.

    A report has no half of a surrogate, which a process of xdist cannot send: it would end the whole run.
    """
    report = yield
    # PySpark has these two keep their records to themselves when it first logs an error of SQL; pytest would then give
    # them its handlers too, whose formatter they replace: each log of a later test would be JSON.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        if name in logging.root.manager.loggerDict:
            logging.getLogger(name).propagate = True
    report.sections = [(name, encodable(text)) for name, text in report.sections]
    if (text := report.longreprtext) != encodable(text):
        report.longrepr = encodable(text)
    needs_the_real_thing = any(map(item.get_closest_marker, ("interop", "spark", "browser")))
    if report.skipped and needs_the_real_thing and os.environ.get("PYRMQ_REQUIRE_INTEROP") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"PYRMQ_REQUIRE_INTEROP=1, yet: {reason}"
    return report
