"""The jobs of the recipes: exports that are started again, by offsets and by time, and the DAG around one."""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import exports
import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer

DAG = Path(__file__).parent.parent / "examples" / "airflow_dags" / "orders_by_hour.py"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 2}) as cluster:
        yield cluster


def send(cluster: EmbeddedCluster, *bodies: str) -> None:
    """Sends the bodies, and waits until they can be read."""
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        results = [producer.send(Message("orders", body.encode())) for body in bodies]
    with PullConsumer("shop", nameserver=cluster.nameserver) as consumer:
        for result in results:
            assert consumer.pull(result.message_queue, result.queue_offset, wait=5).messages


def lines(directory: Path) -> list[str]:
    """Returns the bodies in all files, sorted."""
    assert not list(directory.glob("*.part"))
    files = directory.glob("*.jsonl")
    return sorted(json.loads(line)["body"] for file in files for line in file.read_text().splitlines())


def test_each_run_exports_what_is_new(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    send(cluster, "a", "b", "c")
    assert exports.export_new(cluster.nameserver, "orders", tmp_path) == 3
    assert exports.export_new(cluster.nameserver, "orders", tmp_path) == 0
    send(cluster, "d")
    assert exports.export_new(cluster.nameserver, "orders", tmp_path) == 1
    assert lines(tmp_path) == ["a", "b", "c", "d"]


def test_a_run_that_died_before_its_commit_is_repeated_in_the_same_files(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, "a", "b")

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PullConsumer, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            exports.export_new(cluster.nameserver, "orders", tmp_path)
    assert len(lines(tmp_path)) == 1  # of the first queue
    send(cluster, "c", "d")
    assert exports.export_new(cluster.nameserver, "orders", tmp_path) == 4
    assert lines(tmp_path) == ["a", "b", "c", "d"]


def test_a_read_that_fails_leaves_no_file_and_no_commit(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, "a")

    def fail(consumer: object, ranges: object, file: TextIO) -> None:
        file.write("half a line")
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(exports, "write", fail)
        with pytest.raises(OSError):  # noqa: PT011 - raised above
            exports.export_new(cluster.nameserver, "orders", tmp_path)
    assert not list(tmp_path.glob("*.jsonl"))
    assert exports.export_new(cluster.nameserver, "orders", tmp_path) == 1
    assert lines(tmp_path) == ["a"]


def stand_ins(interval: dict[str, datetime], ran: list[int], settings: dict[str, Any]) -> dict[str, ModuleType]:
    """Returns modules with the names of Airflow that the DAG imports; a task runs when it is called."""

    def dag(**given: object) -> Callable[[Callable[[], None]], Callable[[], None]]:
        settings.update(given)
        return lambda function: function

    names: dict[str, dict[str, Any]] = {
        "airflow": {},
        "airflow.sdk": {
            "dag": dag,
            "task": lambda function: lambda: ran.append(function()),
            "get_current_context": lambda: interval,
        },
        "airflow.timetables": {},
        "airflow.timetables.interval": {"CronDataIntervalTimetable": lambda cron, timezone: (cron, timezone)},
    }
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        vars(module).update(names[name])
    return modules


def test_the_dag_exports_its_interval_and_repeats_it(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, "before")
    start = later()
    send(cluster, "in", "side")
    end = later()
    send(cluster, "behind")
    late = timedelta(minutes=3)
    ran: list[int] = []
    settings: dict[str, Any] = {}
    interval = {"data_interval_start": start + late, "data_interval_end": end + late}
    for name, module in stand_ins(interval, ran, settings).items():
        monkeypatch.setitem(sys.modules, name, module)
    code = DAG.read_text().replace("127.0.0.1:9876", cluster.nameserver).replace("/var/spool/orders", str(tmp_path))
    dag = tmp_path / "orders_by_hour.py"
    dag.write_text(code)
    for _ in range(2):
        runpy.run_path(str(dag))
    assert (ran, lines(tmp_path)) == ([2, 2], ["in", "side"])
    assert (settings["schedule"], settings["catchup"]) == (("3 * * * *", "UTC"), True)


def later() -> datetime:
    """Returns the millisecond behind all that is stored so far, when it has passed."""
    moment = datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000 + 0.001, UTC)
    while datetime.now(UTC) < moment + timedelta(milliseconds=1):
        pass
    return moment


def test_the_script_says_what_is_wrong(
    cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(exports.__file__)
    monkeypatch.setattr(sys, "argv", [str(script), "new", cluster.nameserver, "no-such-topic", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert "no-such-topic" in str(ended.value)
    times = ["2026-03-01T09:00:00Z", "2026-03-01T10:00:00Z"]
    monkeypatch.setattr(sys, "argv", [str(script), "between", cluster.nameserver, "orders", str(tmp_path), *times])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == "0 messages of orders\n"
