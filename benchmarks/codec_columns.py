"""The cost of a message to encode and to decode, by columns and message by message, in nanoseconds of this process.

    python -m benchmarks codec_columns [--quick]

Messages are those of `user_rows`, and carry UNIQ_KEY, WAIT and their keys, tags and user properties. Pulls hold 32 of
them. Both ways run in turn, and their results are compared once. Where pyrmq-native is installed, it runs beside the
pure decoder, too. Each figure is the least of the rounds, which other work on the machine disturbs least, then the
median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from benchmarks.support.user_rows import CASES, Case, pulls_of
from pyrmq_core import OffsetRange, Payload, TagFilter, unique_id_runs
from pyrmq_core.columnar import BatchLimit, schema_of
from pyrmq_core.columnar.decoding.compiled import decode_compiled, decoder
from pyrmq_core.columnar.decoding.decode import decode_columns
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.encoding.encode import encode_columns, encode_messages
from pyrmq_core.columnar.encoding.row_parts import ids_of
from pyrmq_core.columnar.encoding.sink_rows import outgoing_rows
from pyrmq_core.protocol.messages.bodies import BodyRules

COUNTS = (32, 256, 1024, 10_000)
# Message by message, larger counts are left out: the cost of one message does not depend on their number.
MOST_BY_MESSAGE = 1024
EVERYTHING = OffsetRange(0, 1 << 62)
NO_PROPERTIES = ["topic", "brokerName", "queueId", "queueOffset", "body", "bornTimestamp", "storeTimestamp"]


@dataclass(frozen=True, slots=True)
class Figure:
    least: float
    median: float

    def __str__(self) -> str:
        return f"{self.least:7,.0f} ({self.median:6,.0f})"


def encoders(count: int, case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    rows = case.record_batch(count)
    limit = BatchLimit()

    def way(encode: Callable[..., Iterator[Payload]]) -> list[Payload]:
        outgoing = outgoing_rows(rows)
        return list(encode(outgoing, "t", ids_of(unique_id_runs, count), limit, alone=False, waits=True))

    by_columns, by_message = partial(way, encode_columns), partial(way, encode_messages)
    if [len(payload.body) for payload in by_columns()] != [len(payload.body) for payload in by_message()]:
        raise AssertionError("both ways make different requests")
    return by_columns, by_message


def decoders(
    count: int, case: Case, columns: pa.Schema, rules: BodyRules
) -> tuple[Callable[[], object], Callable[[], object]]:
    pulls, tags = pulls_of(count, case), TagFilter()

    def way(decode: Callable[..., Iterator[object]]) -> object:
        return list(decode(pulls, columns, EVERYTHING, tags, rules))

    by_columns, by_message = partial(way, decode_columns), partial(way, decode_messages)
    if count <= MOST_BY_MESSAGE and by_columns() != by_message():
        raise AssertionError("both ways give different rows")
    return by_columns, by_message


def compiled_decoders(count: int, case: Case, columns: pa.Schema) -> tuple[Callable[[], object], Callable[[], object]]:
    """Returns the compiled decoder and the pure one."""
    pulls = pulls_of(count, case)

    def compiled() -> object:
        return decode_compiled(pulls, columns, EVERYTHING, TagFilter(), BodyRules())

    def pure() -> object:
        return next(decode_columns(pulls, columns, EVERYTHING, TagFilter(), BodyRules())).batch

    if compiled() != pure():
        raise AssertionError("both decoders give different rows")
    return compiled, pure


def measured(count: int, rounds: int, *ways: Callable[[], object]) -> list[Figure]:
    """Times the ways in turn, every second round from the last to the first. The first round only warms up."""
    times: list[list[float]] = [[] for _ in ways]
    inner = max(1, 2000 // count)
    for number in range(rounds + 1):
        order = list(enumerate(ways))
        for index, way in order if number % 2 else reversed(order):
            began = time.thread_time_ns()
            for _ in range(inner):
                way()
            times[index].append((time.thread_time_ns() - began) / inner / count)
    return [Figure(min(seconds[1:]), statistics.median(seconds[1:])) for seconds in times]


def line(
    name: str,
    count: int,
    case: Case,
    rounds: int,
    ways: tuple[Callable[[], object], ...],
    most_of_both: int = MOST_BY_MESSAGE,
) -> None:
    own = ways if count <= most_of_both else ways[:1]
    figures = measured(count, rounds, *own)
    other, ratio = (figures[1], f"{figures[1].least / figures[0].least:6.1f} x") if len(figures) > 1 else ("", "")
    print(f"{name:36} {case.name:>10} {count:7,} {figures[0]!s:>17} {other!s:>17} {ratio:>8}", flush=True)


def main(*, quick: bool) -> None:
    rounds = 2 if quick else 25
    print(f"{'ns a message: least (median)':36} {'rows':>10} {'N':>7} {'columns':>17} {'by message':>17} {'ratio':>8}")
    schemas = {
        "decode, 12 columns with map": schema_of(),
        "decode, without properties": schema_of(NO_PROPERTIES),
        "decode, body alone": schema_of(["body"]),
    }
    for case in CASES.values():
        for count in COUNTS:
            line("encode", count, case, rounds, encoders(count, case))
        for name, columns in schemas.items():
            for count in COUNTS:
                line(name, count, case, rounds, decoders(count, case, columns, BodyRules()))
                if decoder().decode is not None:
                    both = compiled_decoders(count, case, columns)
                    line(name + ", compiled beside pure", count, case, rounds, both, count)
            unchecked = decoders(COUNTS[-1], case, columns, BodyRules(verify_crc=False))
            line(name + ", no CRC", COUNTS[-1], case, rounds, unchecked)
