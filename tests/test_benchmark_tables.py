"""The statistics and tables of benchmarks that compare several sides, and the choice of their rows."""

import os

import pytest

from benchmarks.kafka import ROWS, chosen_rows, sides, taken_off
from benchmarks.support.kafka_sitting import SIDES, small_job
from benchmarks.support.pairs import Spread
from benchmarks.support.processes import descendants
from benchmarks.support.session_process import family_cpu, machine_cpu
from benchmarks.support.side_by_side import Better, Row, Run, cpu_text, table


def test_ratios_are_taken_pair_by_pair() -> None:
    """The median of the pairs' ratios, not the ratio of medians; a pair that one side lacks does not count."""
    row = Row("read")
    for pair, (ours, theirs) in enumerate([(1.0, 2.0), (10.0, 5.0), (4.0, 4.0)]):
        row.add("ours", pair, Run(ours, 100))
        row.add("theirs", pair, Run(theirs, 100))
    row.add("ours", 3, Run(0.001, 100))
    assert row.ratio("ours", "theirs") == Spread(1.0, 0.5, 2.0, 3)
    assert row.ratio("theirs", "ours") == Spread(1.0, 0.5, 2.0, 3)
    assert row.ratio("absent", "theirs") is None
    assert row.seconds("theirs") == Spread(4.0, 2.0, 5.0, 3)


def test_a_ratio_of_times_says_how_many_times_as_long() -> None:
    row = Row("small", Better.FEWER_SECONDS)
    row.add("ours", 0, Run(0.3, 10))
    row.add("theirs", 0, Run(0.1, 10))
    ratio = row.ratio("ours", "theirs")
    assert ratio is not None
    assert ratio.median == pytest.approx(3.0)


def test_fixed_costs_are_taken_off_each_side() -> None:
    row = Row("read")
    row.add("ours", 0, Run(3.0, 100))
    row.add("theirs", 0, Run(2.0, 100))
    row.add("ours", 1, Run(3.0, 100))
    row.add("theirs", 1, Run(0.5, 100))  # less than the fixed cost: nothing to compare
    assert row.ratio("ours", "theirs", {"ours": 1.0, "theirs": 1.0}) == Spread(0.5, 0.5, 0.5, 1)
    assert row.ratio("ours", "theirs", {"ours": 1.0, "theirs": 2.0}) is None


def test_the_table_holds_every_side_and_writes_the_load_beside_it() -> None:
    row, fixed = Row("read-100"), Row("fixed-read")
    row.add("kafka", 0, Run(2.0, 1_000_000, 2.0, 0.0, 0.5, 0.25))
    row.add("plain", 0, Run(4.0, 1_000_000, 3.0, 1.0, 1.5, 0.75))
    fixed.add("kafka", 0, Run(1.0, 1000))
    fixed.add("plain", 0, Run(1.0, 1000))
    rows = {line.name: line for line in (row, fixed)}
    lines = table([row], "kafka", taken_off(rows))
    assert len(lines) == 3
    assert "500,000" in lines[1]
    assert "0.25 (0.25 to 0.25)" in lines[1]
    assert "250,000 0.50 (0.50 to 0.50)    0.33 (0.33 to 0.33)    3.00 (1.00) + 1.50" in lines[2]
    assert "0.75 (0.75 to 0.75)" in lines[2]


def test_the_batch_topic_has_the_plain_topics_fixed_cost() -> None:
    making = Row("making-100")
    making.add("kafka", 0, Run(1.0, 1000))
    making.add("plain", 0, Run(2.0, 1000))
    fixed = Row("fixed-read")
    fixed.add("unix", 0, Run(3.0, 1000))
    assert taken_off({"fixed-read": fixed, "read-100": Row("read-100")}) == {
        "read-100": {"unix": 3.0, "unix-batch": 3.0}
    }
    rows = {"making-100": making, "write-100": Row("write-100"), "count": Row("count"), "small-read": Row("small-read")}
    assert taken_off(rows) == {"write-100": {"kafka": 1.0, "plain": 2.0, "batch": 2.0}}


def test_processor_time_is_for_a_million_rows() -> None:
    assert cpu_text([Run(1.0, 500_000, 1.0, 0.25, 0.1)]) == "2.00 (0.50) + 0.20"


def test_rows_are_chosen_by_patterns() -> None:
    assert chosen_rows(["*"]) == list(ROWS)
    assert chosen_rows(["count", "*-1024"]) == ["write-1024", "read-1024", "body-1024", "stream-1024", "count"]
    with pytest.raises(ValueError, match="no row 'reads'; there are: write-100, "):
        chosen_rows(["*-100", "reads"])


def test_a_session_with_settings_reads_the_same_topics() -> None:
    sessions = ("kafka", "plain", "unix")
    for kind in ("read", "stream"):
        read = sides(sessions, kind)
        assert [SIDES[side].topics for side in read] == ["kafka", "plain", "batch", "plain", "batch"]
        assert [SIDES[side].session for side in read] == ["kafka", "plain", "plain", "unix", "unix"]
        assert sides((*sessions, "native"), kind) == (*read, "native", "native-batch")
    assert sides(sessions, "body") == ("kafka", "plain", "batch")
    assert sides(sessions, "small-read") == sides(sessions, "small-write") == ("kafka", "plain", "unix")
    assert sides(("kafka", "plain"), "small-read") == ("kafka", "plain")


def test_a_small_job_on_a_batch_topic_is_that_on_a_plain_one() -> None:
    assert {side: small_job(side) for side in SIDES if small_job(side) != side} == {
        "batch": "plain",
        "unix-batch": "unix",
        "native-batch": "native",
    }


def test_this_process_is_part_of_the_machine() -> None:
    family, machine = family_cpu(), machine_cpu()
    while family_cpu() < family + 0.05:
        sum(range(100_000))
    assert machine_cpu() >= machine + 0.03  # clock ticks of 10 ms
    assert descendants(os.getpid())[0] == os.getpid()
