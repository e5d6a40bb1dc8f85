"""The compiled decoder beside the pure one, its judge: an equal batch, or none; and which of them runs."""

from __future__ import annotations

import logging
import random
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyrmq_core
from pyrmq_core import MessageQueue, OffsetRange, PullStatus, RawPull, TagFilter
from pyrmq_core.columnar import DEFAULT_COLUMNS, decode_batches, schema_of
from pyrmq_core.columnar.decoding.compiled import SETTING, VERSION, decode_compiled, decoder
from pyrmq_core.columnar.decoding.decode import ALL_TAGS
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import EVERYTHING
from pyrmq_core.protocol.messages.batch import BatchItem
from pyrmq_core.protocol.messages.bodies import AS_STORED, BodyRules
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from tests.columnar.stored import HOSTS, Broker, batch_record, pull, record
from tests.support.native_build import SOURCES

ROOT: Final = Path(__file__).parent.parent.parent
ALL: Final = schema_of()
QUEUE: Final = MessageQueue("orders", "broker-a", 3)
NAMES: Final = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "region", "CLUSTER", "größe", "a" * 40)
VALUES: Final = ("x", "true", "ä€😀", "k1 k2", "0" * 32, "v" * 70)
# One text in fifty of a draw.
ODD_TEXTS: Final = (
    b"a",
    b"\x01",
    b"TAGS\x01a\x02TAGS\x01b\x02",
    b"a\x01\x02",
    b"\xff\x01b\x02",
    b"a\x01b\x00\x02",
    b"\x02",
)
Draw = random.Random
Test = TypeVar("Test", bound=Callable[..., None])


def compiled(test: Test) -> Test:
    """Has the test run by the compiled decoder alone."""
    chosen = pytest.mark.parametrize("each_decoder", ["compiled"], indirect=True, scope="module")(test)
    decorated: Test = pytest.mark.usefixtures("each_decoder")(chosen)
    return decorated


def properties(draw: Draw) -> bytes:
    if draw.random() < 0.02:
        return draw.choice(ODD_TEXTS)
    text = "".join(f"{name}\x01{draw.choice(VALUES)}\x02" for name in draw.sample(NAMES, draw.randrange(6))).encode()
    return text[:-1] if draw.random() < 0.2 else text


def stored(draw: Draw, offset: int) -> tuple[bytes, int]:
    """Returns a record at this offset, and its messages."""
    fields = {
        "store_host": draw.choice(HOSTS) if draw.random() < 0.3 else HOSTS[0],
        "born_host": draw.choice(HOSTS) if draw.random() < 0.3 else HOSTS[0],
        "born_timestamp_ms": draw.choice([10**12 + offset] * 99 + [-(2**62)]),
        "reconsume_times": draw.randrange(3),
        "topic": "t" * 200 if draw.random() < 0.01 else "orders",
    }
    if draw.random() < 0.3:
        items = [
            BatchItem(draw.randrange(3), draw.randbytes(draw.randrange(40)), properties(draw))
            for _ in range(draw.randrange(9))
        ]
        return batch_record(offset, *items, **fields), len(items)
    body = draw.randbytes(draw.choice((0, 1, 3, 15, 16, 17, 100, 256, 300)))
    if draw.random() < 0.02:
        body, fields["sys_flag"] = compress(body, CompressionType.ZLIB), CompressionType.ZLIB.sys_flag
    return record(offset, body, properties=properties(draw), **fields), 1


def pulls_of(draw: Draw) -> list[RawPull]:
    """Returns pulls that follow one another; some are cut, flipped or shuffled."""
    pulls: list[RawPull] = []
    offset = draw.randrange(5)
    for _ in range(draw.randrange(1, 4)):
        start, parts = offset, list[bytes]()
        for _ in range(draw.randrange(12)):
            part, messages = stored(draw, offset)
            parts.append(part)
            offset += messages
        if draw.random() < 0.1:
            draw.shuffle(parts)
        octets = bytearray(b"".join(parts))
        if octets and draw.random() < 0.15:
            for _ in range(draw.randrange(1, 4)):
                octets[draw.randrange(len(octets))] = draw.choice((0, 1, 2, 255, draw.randrange(256)))
        if octets and draw.random() < 0.1:
            del octets[draw.randrange(len(octets)) :]
        records = draw.choice((bytes, memoryview))(bytes(octets))
        start, end = start + draw.choice((0, 0, 0, 1)), offset - draw.choice((0, 0, 0, 1))
        pulls.append(RawPull(QUEUE, start, end, 0, end, PullStatus.FOUND, records, is_unfiltered=draw.random() < 0.5))
    return pulls


def is_read(draw: Draw, pulls: list[RawPull]) -> bool:
    """Compares the compiled decoder's batch, if it makes one, with the judge's; returns whether it made one."""
    columns = ALL if draw.random() < 0.7 else schema_of(draw.sample(DEFAULT_COLUMNS, draw.randrange(1, 5)))
    within = EVERYTHING if draw.random() < 0.7 else OffsetRange(draw.randrange(10), draw.randrange(30))
    rules = BodyRules(verify_crc=draw.random() < 0.6) if "body" in columns.names else AS_STORED
    batch = decode_compiled(pulls, columns, within, ALL_TAGS, rules)
    if batch is None:
        return False
    batch.validate(full=True)
    assert [batch] == [decoded.batch for decoded in decode_messages(pulls, columns, within, ALL_TAGS, rules)]
    return True


@compiled
def test_many_records_are_read_equal_and_some_are_left() -> None:
    draw = Draw(7)
    count = sum(is_read(draw, pulls_of(draw)) for _ in range(400))
    assert 120 < count < 380


@compiled
@given(seed=st.integers(0, 10**9))
def test_records_of_any_seed_are_read_equal_or_left(seed: int) -> None:
    draw = Draw(seed)
    for _ in range(10):
        is_read(draw, pulls_of(draw))
        is_read(draw, Broker(seed, torn=0.02, strange=0.1).pulls(1, 12))


def of_two(**fields: Any) -> RawPull:
    return pull(0, record(0), record(1, **fields))


FLIPPED: Final = bytes(octet ^ (place == 88) for place, octet in enumerate(record(0, b"body")))
UNDER_NAMESPACE: Final = replace(pull(0, record(0)), namespace="n")
LEFT: Final[dict[str, list[RawPull]]] = {
    "a wrong CRC": [pull(0, FLIPPED)],
    "a compressed body": [
        of_two(body=compress(b"x" * 99, CompressionType.ZLIB), sys_flag=CompressionType.ZLIB.sys_flag)
    ],
    "a name twice": [of_two(properties="a\x01b\x02a\x01c\x02")],
    "a text that is not UTF-8": [of_two(properties=b"a\x01\xff\x02")],
    "a zero byte": [of_two(properties="a\x01\x00\x02")],
    "an empty value": [of_two(properties="a\x01\x02")],
    "separators out of turn": [of_two(properties="a\x02b\x01")],
    "a cut record": [pull(0, record(0)[:-1])],
    "a record of no size": [pull(0, record(0), bytes(100))],
    "a time beyond Arrow's": [of_two(born_timestamp_ms=2**62)],
    "another topic": [of_two(topic="other")],
    "a namespace": [UNDER_NAMESPACE],
    "two brokers": [pull(0, record(0)), pull(1, record(1), queue=replace(QUEUE, broker_name="broker-b"))],
    "a filter of properties": [replace(pull(0, record(0)), passes=bool)],
    "a gap": [replace(pull(0, record(0), count=2), is_unfiltered=True)],
    "an offset twice": [replace(pull(0, record(0), record(0)), is_unfiltered=True)],
    "a batch of a group's topic": [
        pull(0, batch_record(0, BatchItem(0, b"", b"")), queue=replace(QUEUE, topic="%RETRY%g"))
    ],
    "no pull": [],
}


@pytest.mark.parametrize("kind", LEFT)
@compiled
def test_what_needs_a_decision_is_left_to_the_pure_decoder(kind: str) -> None:
    """It then reads the records or raises the error by name, as without the compiled one."""
    assert decode_compiled(LEFT[kind], ALL, EVERYTHING, ALL_TAGS, BodyRules()) is None
    outcomes: list[object] = []
    for decode in (
        decode_batches,
        lambda pulls, columns: decode_messages(pulls, columns, EVERYTHING, ALL_TAGS, BodyRules()),
    ):
        try:
            outcomes.append([batch for batch, _ in decode(LEFT[kind], ALL)])
        except RocketMQError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


@compiled
def test_other_columns_and_tags_are_left() -> None:
    pulls = [pull(0, record(0))]
    assert decode_compiled(pulls, ALL, EVERYTHING, ALL_TAGS, BodyRules()) is not None
    assert decode_compiled(pulls, ALL, EVERYTHING, TagFilter.parse("a"), BodyRules()) is None
    assert decode_compiled(pulls, schema_of(["body", "bornHost"]), EVERYTHING, ALL_TAGS, BodyRules()) is None


@compiled
def test_columns_have_the_types_that_the_caller_names() -> None:
    columns = pa.schema(
        [("body", pa.string()), ("queueOffset", pa.int32()), ("bornTimestamp", pa.timestamp("ms", "UTC"))]
    )
    pulls = [pull(0, record(0, "ä".encode()), record(1, b"\xff"))]
    batch = decode_compiled(pulls, columns, EVERYTHING, ALL_TAGS, BodyRules())
    assert [batch] == [part.batch for part in decode_messages(pulls, columns, EVERYTHING, ALL_TAGS, BodyRules())]


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forgets the process's decoder before and after the test."""
    monkeypatch.delenv(SETTING, raising=False)
    decoder.cache_clear()
    yield
    decoder.cache_clear()


@pytest.mark.usefixtures("undecided")
def test_another_version_is_not_used_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = ModuleType("pyrmq_native")
    other.__dict__.update(__version__="0.0.1", decode=decode_batches)
    monkeypatch.setitem(sys.modules, "pyrmq_native", other)
    assert decoder().decode is None
    [line] = caplog.records
    assert (line.levelno, f"pyrmq-native=={VERSION}" in line.getMessage()) == (logging.WARNING, True)


@pytest.mark.usefixtures("undecided")
def test_a_variable_turns_it_off_and_a_line_says_which_decoder_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyrmq_core.columnar")
    monkeypatch.setenv(SETTING, "0")
    for _ in range(2):
        list(decode_batches([pull(0, record(0))], ALL))
    assert [line.getMessage() for line in caplog.records] == ["the decoder of records is pure: PYRMQ_NATIVE=0"]


def test_one_version_everywhere() -> None:
    crate = tomllib.loads((SOURCES / "Cargo.toml").read_text())["package"]["version"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert pyrmq_core.__version__ == VERSION == crate
    assert f"pyrmq-native=={VERSION}" in extras["native"]
