"""The parsers of what clients, Spark and the page read, for `fuzzing`, with real input for each."""

from __future__ import annotations

import importlib
import json
import pkgutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyrmq_core.columnar import SOURCE_COLUMNS, DecodedBatch, schema_of
from pyrmq_core.columnar.body_schema import infer_body_schema
from pyrmq_core.columnar.decoding.compiled import decode_compiled
from pyrmq_core.columnar.decoding.decode import decode_columns
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.committed.records import MANIFEST_VERSION, VERSION, CommitRecord, StoredRange, commit_messages, entry_of
from pyrmq_core.errors import RocketMQError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import EVERYTHING, MessageExt, MessageQueue, PullStatus
from pyrmq_core.protocol import requests
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.trace_events import trace_events
from pyrmq_core.tools.search.conditions import Members
from pyrmq_core.tools.search.where import Where
from pyrmq_core.tools.web.body_text import FORMS, body_text, summary
from pyrmq_spark.options import check_names, read_connection, read_sink, read_source
from pyrmq_spark.stream.stream_offset import StreamOffset

QUEUE = MessageQueue("T", "broker-a", 0)
MESSAGE = MessageExt("T", "broker-a", 0, 0, b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "A", "B")
COLUMNS = schema_of(tuple(SOURCE_COLUMNS))
RULES = BodyRules(max_body_bytes=1 << 20)


def pull_of(records: bytes) -> RawPull:
    return RawPull(QUEUE, 0, 2**40, 0, 2**40, PullStatus.FOUND, records)


def _conversations() -> Iterator[Callable[[Command], object]]:
    for module in pkgutil.walk_packages(requests.__path__, f"{requests.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__ == module.name and hasattr(value, "from_command"):
                yield value.from_command


CONVERSATIONS = tuple(_conversations())


def commands_of(data: bytes) -> Iterator[Command]:
    decoder = FrameDecoder(max_header_bytes=1 << 20)
    decoder.feed(memoryview(data))
    while (command := decoder.next_command()) is not None:
        yield command


def conversations(data: bytes) -> None:
    """Reads each frame as every request and every answer that there is."""
    for command in commands_of(data):
        for read in CONVERSATIONS:
            with suppress(RocketMQError):
                read(command)


def _table(batches: Iterable[DecodedBatch]) -> pa.Table | None:
    """Returns the rows of all batches; None for a named error."""
    try:
        return pa.Table.from_batches([decoded.batch for decoded in batches], COLUMNS)
    except RocketMQError:
        return None


def rows_and_columns(data: bytes) -> None:
    """Reads records by column and by row, and compares what came of them."""
    arguments = ((pull_of(data),), COLUMNS, EVERYTHING, TagFilter(), RULES)
    try:
        by_column = _table(decode_columns(*arguments, allow_gaps=True))
    except Unreadable:
        return
    by_row = _table(decode_messages(*arguments, allow_gaps=True))
    assert by_column == by_row, f"by column {by_column}, by row {by_row}"


def compiled_and_rows(data: bytes) -> None:
    """Reads records by the compiled decoder, where it is installed, and by row, whose lines guide the inputs."""
    arguments = ((pull_of(data),), schema_of(), EVERYTHING, TagFilter(), RULES)
    batch = decode_compiled(*arguments)
    if batch is not None:
        batch.validate(full=True)
    by_row = None
    with suppress(RocketMQError):
        by_row = [decoded.batch for decoded in decode_messages(*arguments, allow_gaps=True)]
    assert batch is None or by_row == [batch], f"compiled {batch}, by row {by_row}"


def _manifest_bodies() -> tuple[bytes, ...]:
    ranges = tuple(StoredRange(replace(QUEUE, queue_id=number), 7, 3, "A" * 32, "B" * 32) for number in range(3))
    record = CommitRecord("query", 3, 9, ranges, seen=2, commit="attempt", parts=0, decided={})
    return tuple(bytes(message.body) for message in commit_messages(record, "T-committed"))


MANIFEST = (*_manifest_bodies(), b'{"commit":"attempt","ranges":{"T":{"broker-a":{"0":[[7,3,"A","B"]]}}}}')


def manifest(data: bytes) -> object:
    return entry_of(replace(MESSAGE, body=data, properties={MANIFEST_VERSION: VERSION}))


def stream_offset(data: bytes) -> None:
    """Reads an offset that Spark kept, and writes it again."""
    try:
        kept = json.loads(data)
    except (ValueError, RecursionError):
        return  # Spark refuses it
    StreamOffset.from_json(kept).to_json()


STREAM_OFFSET = json.dumps(
    StreamOffset({QUEUE: 7, replace(QUEUE, queue_id=1): 9}, {QUEUE: 3}, {QUEUE: 0}).to_json()
).encode()
OPTIONS = (
    b"nameServer=127.0.0.1:9876\ntopic=orders\nstartingOffsets=latest\ntags=a || b\nmaxOffsetsPerTrigger=10",
    b'assign={"orders":{"broker-a":[0,1]}}\nstartingTimestamp={"orders":{"broker-a":{"0":1}}}\nsql=a > 1',
    b"nameServer=a:1;b:2\ntopic=t\ncompression=zstd\ndelivery=committed\ntxnAppId=a\ntxnVersion=7\nbatchSize=1MiB",
    b"topicPattern=ord.*\nendingOffsets=latest\nisolation=committed\nuseTls=true\ntlsCaFile=/ca.pem\nnamespace=n",
)


def options(data: bytes) -> None:
    """Reads lines `name=value` as the options of a read, a write, a stream's write, and a connection."""
    lines = data.decode("utf-8", "replace").splitlines()
    raw = {name: value for name, _, value in (line.partition("=") for line in lines)}
    readings: tuple[Callable[[], object], ...] = (
        lambda: check_names(raw),
        lambda: read_connection(raw, {}),
        lambda: read_source(raw),
        lambda: read_sink(raw),
        lambda: read_sink(raw, stream=True),
    )
    for read in readings:
        with suppress(RocketMQError), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python's, of a pattern that it may read otherwise some day
            read()


ROWS = tuple(
    replace(MESSAGE, body=body, properties={"TAGS": "a", "KEYS": "k l", "region": "eu"})
    for body in (b'{"user":{"id":42,"names":["x"]},"price":1e400,"at":null}', b"[1,2]", b"no JSON", b"\xff")
)
WHERE = (
    b"json.user.id == 42 and (tags in ['a', \"b\"] or not json.price < -1.5e3)",
    b"born >= '2024-01-01T00:00:00Z' and 'k' in keys or properties.region != null",
    b"json['user'].names[0] == 'x' and stored < \"2030-01-01T00:00:00+02:00\" or json.at",
)


def where(text: str) -> None:
    """Reads a condition of `pyrmq search`, and holds messages against it."""
    condition = Members(Where.parse(text))
    for row in ROWS:
        with suppress(ValueError):  # a body that is no JSON is counted apart
            condition.holds(row)


def schema(data: bytes) -> object:
    """Infers the columns of bodies that are JSON, one a line."""
    inferred = infer_body_schema(data.splitlines())
    return inferred.ddl, inferred.json_ddl


SCHEMA = (
    b'{"id":1,"price":12.50,"tags":["a"],"at":null}\n{"id":9007199254740993,"price":3}\ntext\n{"user":{"x":true}}',
    b'{"a":{"b":{"c":[1,2.5,"x"]}}}\n{"A":1}\n[1]\n{"a":{"1":1,"2":2}}',
)
PAGE_BODIES = (b'{"a":[1,2.50,{"b":"\\u00e9"}],"c":1e400}', b"plain text\x1b[0m", b"\x00\xff\x80", b"[" * 50)


def page_body(data: bytes) -> Any:
    """Shows a body as the page does, in each form."""
    return summary(data), [body_text(data, form) for form in ("", *FORMS)]


TRACES = (
    b"Pub\x011700000000000\x01region\x01group\x01topic\x01id\x01tags\x01keys\x01host\x017\x013\x010\x01off\x01true\x01host\x02",
    b"SubBefore\x011700000000000\x01region\x01group\x01request\x01id\x010\x01keys\x02"
    b"SubAfter\x01request\x01id\x013\x01true\x01keys\x010\x01group\x02EndTransaction\x011\x02Recall\x01null\x02",
)


def traces(text: str) -> object:
    return list(trace_events(text))
