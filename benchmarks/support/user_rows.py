"""The rows that bulk benchmarks send, of lengths that vary, as users' topics have them, or of one length, to compare.

A row's body, key, tag and user properties follow from its number alone, so that every client and connector gets the
same ones. Nothing but the standard library is loaded before record batches or pulls are made: the Python of other
clients reads this module, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_core import RawPull

SEED: Final = 2013
# So many bodies are made, and taken in turn.
POOL: Final = 1024
# Of the logarithm of a length: two thirds of the bodies have 0.6 to 1.65 times the median.
SIGMA: Final = 0.5
# The shortest and the longest body, beside the mean: none reaches the 4 KiB from which clients compress.
SHORTEST, LONGEST = 1 / 8, 3.9
KEY_HEADS: Final = ("", "order-", "customer/", "emea-2013-")
TAGS: Final = ("created", "paid", "shipped", "returned", "cancelled")
# One row in so many has user properties.
PROPERTIES_EACH: Final = 5
PULL: Final = 32
REGION: Final = "eu-west"
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# The keys of equal rows have one length, up to nine million rows.
EQUAL_FIRST: Final = 1_000_000
# So many rows have every combination of body, tag and properties.
CYCLE: Final = POOL * len(TAGS)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of rows: bodies of `body_bytes` in the mean, or `equal` rows, which differ in nothing but their text."""

    name: str
    body_bytes: int
    equal: bool = False
    json: bool = False

    @property
    def bodies(self) -> tuple[str, ...]:
        """The pool: row i has the body i, modulo its length."""
        if self.equal:
            return ("x" * self.body_bytes,)
        return flights() if self.json else texts(self.body_bytes)

    @property
    def first(self) -> int:
        """The number in the key of row 0."""
        return EQUAL_FIRST if self.equal else 0

    @property
    def heads(self) -> tuple[str, ...]:
        """The texts before the number in the keys, in turn."""
        return ("key-",) if self.equal else KEY_HEADS

    @property
    def tags(self) -> tuple[str, ...]:
        return TAGS[:1] if self.equal else TAGS

    def body(self, number: int) -> bytes:
        bodies = self.bodies
        return bodies[number % len(bodies)].encode()

    def key(self, number: int) -> str:
        return f"{self.heads[number % len(self.heads)]}{self.first + number}"

    def tag(self, number: int) -> str:
        return self.tags[number % len(self.tags)]

    def properties(self, number: int) -> dict[str, str]:
        if self.equal or number % PROPERTIES_EACH:
            return {}
        return {"region": REGION, "attempt": str(number)}

    def lines(self) -> Iterator[str]:
        """Yields each row of a cycle for a program in another language, between tabulators.

        That is the key's head and the number to which the row's is added, the tag, the region if there are user
        properties, and the body.
        """
        for number in range(CYCLE):
            head, tag = self.heads[number % len(self.heads)], self.tag(number)
            region = self.properties(number).get("region", "")
            yield "\t".join((head, str(self.first), tag, region, self.body(number).decode()))

    def property_text(self, number: int, unique_id: str = "7F0000010E8F18B4AAC24F4E%08X") -> str:
        """Returns the properties as a client writes them behind the body."""
        pairs = {"KEYS": self.key(number), "UNIQ_KEY": unique_id % number, "WAIT": "true", "TAGS": self.tag(number)}
        return "".join(f"{name}\x01{value}\x02" for name, value in (pairs | self.properties(number)).items())

    def record_batch(self, count: int, first: int = 0) -> pa.RecordBatch:
        """Returns the rows from the number `first` on, as columns of the sink."""
        import pyarrow as pa

        numbers = range(first, first + count)
        columns = {
            "body": pa.array(map(self.body, numbers), pa.binary(), size=count),
            "keys": pa.array(map(self.key, numbers), pa.string(), size=count),
            "tags": pa.array(map(self.tag, numbers), pa.string(), size=count),
        }
        if not self.equal:
            pairs = [list(self.properties(number).items()) for number in numbers]
            columns["properties"] = pa.array(pairs, pa.map_(pa.string(), pa.string()))
        return pa.record_batch(columns)


@contextmanager
def lines_of(case: Case) -> Iterator[Path]:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "rows"
        file.write_text("\n".join(case.lines()))
        yield file


@cache
def pulls_of(count: int, case: Case) -> list[RawPull]:
    """Returns pulls of records as a broker stores them."""
    from pyrmq_core import MessageQueue, PullStatus, RawPull
    from pyrmq_core.protocol.messages.record import encode_record

    records = [
        encode_record(
            topic="TopicTest",
            queue_id=3,
            queue_offset=number,
            commit_log_offset=300 * number,
            body=case.body(number),
            properties=case.property_text(number),
            born_timestamp_ms=1_700_000_000_000 + number,
            born_host="127.0.0.1:50000",
            store_timestamp_ms=1_700_000_000_001 + number,
            store_host="127.0.0.1:10911",
        )
        for number in range(count)
    ]
    queue, parts = MessageQueue("TopicTest", "broker-a", 3), []
    for start in range(0, count, PULL):
        end = min(count, start + PULL)
        parts.append(RawPull(queue, start, end, 0, count, PullStatus.FOUND, b"".join(records[start:end])))
    return parts


@cache
def lengths(mean: int) -> tuple[int, ...]:
    """Returns the lengths of a pool: log-normal around the mean."""
    draw = random.Random(SEED)
    draws = (draw.lognormvariate(log(mean) - SIGMA**2 / 2, SIGMA) for _ in range(POOL))
    return tuple(round(min(max(length, SHORTEST * mean), LONGEST * mean)) for length in draws)


@cache
def texts(mean: int) -> tuple[str, ...]:
    draw = random.Random(SEED)
    return tuple("".join(draw.choices(LETTERS, k=length)) for length in lengths(mean))


@cache
def flights() -> tuple[str, ...]:
    """Returns rows of the demo as JSON: its columns, with values as they are in 2013's flights from New York."""
    draw = random.Random(SEED)
    lines = []
    for _ in range(POOL):
        hour, minute, day = draw.randrange(5, 24), draw.randrange(60), draw.randrange(1, 29)
        delay, air = round(draw.gauss(12, 40)), draw.randrange(20, 660)
        row = {
            "year": 2013, "month": draw.randrange(1, 13), "day": day, "dep_time": hour * 100 + minute,
            "sched_dep_time": hour * 100, "dep_delay": delay, "arr_time": draw.randrange(2400),
            "sched_arr_time": draw.randrange(2400), "arr_delay": delay - draw.randrange(20),
            "carrier": draw.choice(("UA", "B6", "EV", "DL", "AA")), "flight": draw.randrange(1, 8500),
            "tailnum": f"N{draw.randrange(100, 99999)}", "origin": draw.choice(("EWR", "JFK", "LGA")),
            "dest": draw.choice(("ORD", "ATL", "LAX", "BOS", "MCO")), "air_time": air, "distance": 7 * air,
            "hour": hour, "minute": minute, "time_hour": f"2013-01-{day:02}T{hour:02}:00:00.000Z",
        }  # fmt: skip
        if delay > 100:  # to_json leaves out what is null, as of a cancelled flight
            del row["dep_time"], row["arr_time"], row["air_time"]
        lines.append(json.dumps(row, separators=(",", ":")))
    return tuple(lines)


CASES: Final = {
    case.name: case
    for case in (
        Case("100", 100),
        Case("1024", 1024),
        Case("json", 340, json=True),
        Case("100-equal", 100, equal=True),
        Case("1024-equal", 1024, equal=True),
    )
}
SMALL, LARGE, EQUAL = CASES["100"], CASES["1024"], CASES["100-equal"]
