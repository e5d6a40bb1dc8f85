"""The connector beside Spark's Kafka connector in one sitting: bulk jobs, streams, small batches, 1,000 queues.

    python -m benchmarks.kafka [--quick] [--pairs N] [--rows PATTERN...] [--large-pulls] [--native] [--output ...]

Ours runs on the installed Spark and Apache RocketMQ 5.4.0, Kafka's connector on Spark 4.2.0 (it is not published for
4.3) and Kafka 3.9.1. All are alive at once and driven in turn, with stores in memory. A pair runs every side once;
every second pair runs them in the reverse order. A write of ours ends when all of it is readable.

Sides: `plain` and `batch` are a plain topic and a batch topic of ours in a session without settings; `unix` and
`unix-batch` are the same topics in a session as the quick start has it, with `pyrmq_spark.session_settings()` and a
registered source. With `--native`, `native` and `native-batch` are such a session with the compiled decoder; all others
decode in Python. With `--large-pulls` the broker of ours answers a pull with more than 32 messages, as
docs/performance.md advises for bulk reads.

Rows, which a PATTERN selects (`*-100`): write-100, read-100, body-100 (a read of the body alone), stream-100 (a new
query with `availableNow`) with 2,000,000 messages of 100 B, of lengths that vary as `user_rows` says; the same with
1024 for 500,000 of 1 KiB, with json for a million flights, and with 100-equal and 1024-equal for messages of one
length; small-read and small-write (the median batch of a stream with ten rows a batch: source to `noop`, and made rows
to sink); count (over 1,000 queues of one row, two pairs at most; Kafka's fetches wait 10 ms there, not 500). Both
connectors write and read the same messages; user properties are Kafka's headers.

The second ratio takes off what is not the connector's own: the median time of a job of 1,000 rows from reads and
streams, the time to make the rows from writes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from benchmarks.support.kafka_sitting import (
    BATCH,
    KAFKA,
    NATIVE,
    NATIVE_BATCH,
    PLAIN,
    SIDES,
    UNIX,
    UNIX_BATCH,
    Job,
    KafkaSitting,
    kafka_sitting,
    small_job,
)
from benchmarks.support.results import OUTPUT, write_json
from benchmarks.support.side_by_side import Better, Row, table
from benchmarks.support.spark_jobs import QUEUES

# The messages of each case of `user_rows`.
MESSAGES: Final = {"100": 2_000_000, "1024": 500_000, "json": 1_000_000, "100-equal": 2_000_000, "1024-equal": 500_000}
# The case of jobs whose few messages are not what counts.
FEW: Final = "100"
BULK: Final = ("write", "read", "body", "stream")
SMALL: Final = ("small-read", "small-write")
COUNT: Final = "count"
ROWS: Final = (*(f"{kind}-{case}" for case in MESSAGES for kind in BULK), *SMALL, COUNT)
JOBS: Final = {"read": "read", "body": "read_body", "stream": "available_now"}

BULK_SIDES: Final = (KAFKA, PLAIN, BATCH)
# The rows that the session with settings runs, too.
UNIX_BULK: Final = ("read", "stream")
SMALL_SIDES: Final = (KAFKA, PLAIN, UNIX)
TWO_SIDES: Final = (KAFKA, PLAIN)

FIXED_ROWS: Final = 1000
FIXED_RUNS: Final = 5
COUNT_PAIRS: Final = 2
MANY_QUEUES: Final = 1000
SMALL_BATCHES: Final = 45
SMALL_ROWS: Final = 10
WARM_BATCHES: Final = 8
PAIRS: Final = 5
QUICK_SHARE: Final = 40
# Of a session without settings, and of one with them.
HEAPS: Final = ("3g", "2g")
QUICK_HEAPS: Final = ("1g", "1g")
LARGE_PULLS: Final = {"maxTransferCountOnMessageInMemory": "1024", "maxTransferBytesOnMessageInMemory": "4194304"}
WARM_SHARE: Final = 5
# Heaps of 3 + 3 + 2 GiB, the servers, and the stores of five pairs.
LEAST_MEMORY_GIB: Final = 18
QUICK_MEMORY_GIB: Final = 6


class NoRoom(Exception):
    """The error of a machine with too little memory, before anything is started."""


def chosen_rows(patterns: Sequence[str]) -> list[str]:
    """Returns the rows that any pattern selects, in their order. Raises `ValueError` for one that selects none."""
    for pattern in patterns:
        if not any(fnmatch(row, pattern) for row in ROWS):
            raise ValueError(f"no row {pattern!r}; there are: {', '.join(ROWS)}")
    return [row for row in ROWS if any(fnmatch(row, pattern) for pattern in patterns)]


def bulk(at: KafkaSitting, case: str, kinds: Sequence[str], rows: int, pairs: int) -> Iterator[None]:
    """Runs the rows of one case, and yields after each pair. Without `write`, all pairs read the same topics."""
    warm = {side: at.filled(side, rows // WARM_SHARE, case) for side in BULK_SIDES}
    for kind, job in JOBS.items():
        if kind in kinds:
            run = running(job, warm)
            for side in sides(at.sessions, kind):
                run(side, at.session(side))
    at.drop(warm)
    topics: dict[str, str] = {}
    for pair in range(pairs):
        if "write" in kinds:
            at.drop(topics)
            topics = {side: at.new_topic(side) for side in BULK_SIDES}
            at.compare(f"write-{case}", pair, BULK_SIDES, rows, writing(at, topics, rows, case))
        elif not topics:
            topics = {side: at.filled(side, rows, case) for side in BULK_SIDES}
        for kind, job in JOBS.items():
            if kind in kinds:
                run = running(job, topics)
                at.compare(f"{kind}-{case}", pair, sides(at.sessions, kind), rows, run)
        yield
    at.drop(topics)


def making(at: KafkaSitting, case: str, rows: int, runs: int) -> None:
    job: dict[str, Any] = {"rows": rows, "case": case, "partitions": QUEUES}
    for number in range(runs):
        at.compare(f"making-{case}", number, TWO_SIDES, rows, lambda _, session: session.run("make", **job))


def fixed(at: KafkaSitting, kinds: Sequence[str], runs: int) -> None:
    topics = {side: at.filled(side, FIXED_ROWS, FEW) for side in TWO_SIDES}
    for kind in kinds:
        job_sides = tuple(side for side in sides(at.sessions, kind) if side == small_job(side))
        run = running(JOBS[kind], topics)
        for side in job_sides:
            run(side, at.session(side))
        for number in range(runs):
            at.compare(f"fixed-{kind}", number, job_sides, FIXED_ROWS, run)


def small(at: KafkaSitting, name: str, batches: int, pairs: int) -> Iterator[None]:
    """Runs the small batches of a stream. One query of each side goes before to warm up."""
    rows = SMALL_ROWS * batches
    filled = name == "small-read"
    topics = {side: at.filled(side, rows, FEW) if filled else at.new_topic(side) for side in TWO_SIDES}
    job, job_sides = name.replace("-", "_") + "s", sides(at.sessions, name)
    warm = running(job, topics, batches=WARM_BATCHES)
    for side in job_sides:
        warm(side, at.session(side))
    run = running(job, topics, batches=batches)
    for pair in range(pairs):
        at.compare(name, pair, job_sides, rows, run, better=Better.FEWER_SECONDS)
        yield


def count(at: KafkaSitting, queues: int, pairs: int) -> Iterator[None]:
    topics = {side: at.new_topic(side, queues) for side in TWO_SIDES}
    for side, topic in topics.items():
        at.session(side).run("scatter", topic=topic, rows=queues)
        at.wait_readable(side, topic, queues, queues)
    for pair in range(pairs):
        run = running(COUNT, topics)
        at.compare(COUNT, pair, TWO_SIDES, queues, run, better=Better.FEWER_SECONDS)
        yield


def writing(at: KafkaSitting, topics: Mapping[str, str], rows: int, case: str) -> Job:
    return lambda side, _: at.write(side, topics[side], rows, case)


def running(job: str, topics: Mapping[str, str], **arguments: int) -> Job:
    """Returns a job on the side's topic."""
    return lambda side, session: session.run(job, topic=topics[SIDES[side].topics], **arguments)


def sides(sessions: Collection[str], kind: str) -> tuple[str, ...]:
    """Returns the sides that run a kind of job, of those whose session is open."""
    every: tuple[str, ...] = SMALL_SIDES if kind in SMALL else BULK_SIDES
    if kind in UNIX_BULK:
        every = (*BULK_SIDES, UNIX, UNIX_BATCH, NATIVE, NATIVE_BATCH)
    return tuple(side for side in every if SIDES[side].session in sessions)


def taken_off(rows: Mapping[str, Row]) -> dict[str, dict[str, float]]:
    """Returns the seconds of each side, by the name of each bulk row, that its second ratio takes off."""
    seconds = {}
    for name in rows:
        kind, _, case = name.partition("-")
        less = f"making-{case}" if kind == "write" else f"fixed-{kind}"
        if kind in BULK and less in rows:
            medians = {side: rows[less].seconds(side).median for side in rows[less].runs}
            seconds[name] = {side: medians[small_job(side)] for side in SIDES if small_job(side) in medians}
    return seconds


def write_results(at: KafkaSitting, output: Path) -> list[str]:
    """Writes `kafka.json` and `kafka.txt`, and returns the lines of the table."""
    lines = table(list(at.rows.values()), KAFKA, taken_off(at.rows))
    write_json(output / "kafka.json", [row.as_json(KAFKA) for row in at.rows.values()])
    (output / "kafka.txt").write_text("\n".join(lines) + "\n")
    return lines


def parts(at: KafkaSitting, rows: Sequence[str], pairs: int, *, quick: bool) -> Iterator[None]:
    """Runs the chosen rows, part by part, each on an empty store, and yields after each pair."""
    share, runs = (QUICK_SHARE, 1) if quick else (1, FIXED_RUNS)
    kinds = {case: [kind for kind in BULK if f"{kind}-{case}" in rows] for case in MESSAGES}
    reads = [kind for kind in JOBS if any(kind in case_kinds for case_kinds in kinds.values())]
    fixed(at, reads, runs)
    for case, case_kinds in kinds.items():
        if "write" in case_kinds:
            making(at, case, MESSAGES[case] // share, runs)
        if case_kinds:
            yield from bulk(at, case, case_kinds, MESSAGES[case] // share, pairs)
            at.fresh_store()
    for name in SMALL:
        if name in rows:
            yield from small(at, name, WARM_BATCHES + 2 if quick else SMALL_BATCHES, pairs)
    if COUNT in rows:
        yield from count(at, MANY_QUEUES // 10 if quick else MANY_QUEUES, min(pairs, COUNT_PAIRS))


def main(
    *,
    quick: bool = False,
    pairs: int = PAIRS,
    rows: Sequence[str] = ("*",),
    large_pulls: bool = False,
    native: bool = False,
    output: Path = OUTPUT,
) -> None:
    """Prints the table, and writes it and the runs to `output` after each pair."""
    chosen = chosen_rows(rows)
    pairs = 1 if quick else pairs
    check_memory(QUICK_MEMORY_GIB if quick else LEAST_MEMORY_GIB)
    began = time.perf_counter()
    unix = any(row in SMALL or row.partition("-")[0] in UNIX_BULK for row in chosen)
    heaps = QUICK_HEAPS if quick else HEAPS
    broker_settings = LARGE_PULLS if large_pulls else {}
    with kafka_sitting(heaps, unix=unix, native=native, broker_settings=broker_settings) as at:
        for _ in parts(at, chosen, pairs, quick=quick):
            write_results(at, output)
            print(f"   {time.perf_counter() - began:.0f} s", flush=True)
        print("\n".join(write_results(at, output)), flush=True)


def check_memory(least_gib: int) -> None:
    """Raises `NoRoom` if less memory is available: the stores lie in it too."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / (1 << 20)
    if available < least_gib:
        raise NoRoom(f"{available:.1f} GiB of memory are available; this benchmark needs {least_gib}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one pair with few rows, to see that it works")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="PATTERN", help="the rows to run; all by default")
    parser.add_argument("--large-pulls", action="store_true", help="the broker's settings for bulk reads")
    parser.add_argument("--native", action="store_true", help="a session with the compiled decoder, too")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="a directory for kafka.json and kafka.txt")
    options = parser.parse_args()
    try:
        chosen_rows(options.rows)
    except ValueError as error:
        parser.error(str(error))
    main(**vars(options))
