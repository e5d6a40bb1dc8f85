"""Committed streams over kills at named points, on our servers: each number once, for a stream and a pull consumer."""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.committed_kills import (
    LOCAL,
    STRAGGLER,
    WITH_EXECUTORS,
    Act,
    check_rows,
    drawn,
    killed_at_points,
    seeded,
    written_files,
)
from tests.support.our_cluster import boot_our_cluster
from tests.support.standalone import boot_standalone, job_environment

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent.parent
BEHIND_THE_RECORD = Act("driver", "the record", is_answer=True)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [(["0", "2"], r"1 of 3 rows are lost: \['1'\]"), (["0", "1", "1", "2"], r"1 rows are repeated: \['1'\]")],
)
def test_the_check_fails(rows: list[str], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_rows("a reader", Counter(rows), Counter("012"))


def test_files_that_the_sinks_log_does_not_name_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, files in {"0": ["a.parquet"], "9.compact": ["a.parquet", "b.parquet"], ".10.crc": ["c.parquet"]}.items():
        lines = (json.dumps({"path": f"file://{tmp_path}/{file}", "action": "add"}) for file in files)
        (log / name).write_text("\n".join(("v1", *lines)))
    assert written_files(tmp_path) == [tmp_path / "a.parquet", tmp_path / "b.parquet"]


def run(directory: Path, acts: Iterable[Act], draw: random.Random, master: str, sink: str = "rocketmq") -> int:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    with boot_our_cluster() as cluster:
        return killed_at_points(cluster, directory, acts, draw, master, sink).acts.total()


@pytest.mark.timeout(600)
def test_each_number_once_over_two_kills(tmp_path: Path) -> None:
    """The driver dies before its record, which comes late; a worker dies amid its sends.

    A batch that comes again behind its record is a job of `test_committed.py`, too, by a log of Spark's that is lost.
    """
    acts = [Act("late driver", "the record"), Act("worker", "a send", 5, is_answer=True)]
    assert run(tmp_path, acts, random.Random(1), LOCAL) == len(acts)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_number_once_though_the_driver_dies_behind_the_record(tmp_path: Path) -> None:
    assert run(tmp_path, [BEHIND_THE_RECORD], random.Random(1), LOCAL) == 1


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_batch_that_is_written_though_it_is_decided_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"the stream: \d+ rows are repeated"):
        run(tmp_path, [BEHIND_THE_RECORD], random.Random(1), LOCAL, "planted")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("master", [LOCAL, WITH_EXECUTORS])
def test_each_number_once_over_many_kills(tmp_path: Path, master: str) -> None:
    """PYRMQ_SEED repeats a run's choices, though not its moments; PYRMQ_KILLS has more of them."""
    draw, count = seeded(), int(os.environ.get("PYRMQ_KILLS") or 20)
    assert run(tmp_path, drawn(draw, count, master), draw, master) == count


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_number_once_though_speculation_runs_tasks_twice(tmp_path: Path) -> None:
    """An executor dies; then a worker stands still amid its sends, another host runs its task, and it goes on."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    acts = [Act("executor", "a send", 4, is_answer=True)]
    acts += [Act(STRAGGLER, "a send", number, is_answer=number % 2 == 0) for number in (3, 6)]
    with boot_standalone(tmp_path, job_environment(ROOT), workers=2) as spark, boot_our_cluster() as cluster:
        report = killed_at_points(
            cluster, tmp_path, acts, random.Random(1), spark.master, "rocketmq", hosts=spark.workers
        )
    assert report.acts.total() == len(acts)
    assert report.stored > report.numbers
