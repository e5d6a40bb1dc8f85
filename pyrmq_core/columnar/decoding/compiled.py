"""The compiled decoder of the extra `native`, for pulls that it can read.

It cannot read filters, other columns than the default ones, compressed or damaged bodies, gaps, namespaces, and pulls
of several brokers. Its source is `native/`.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa

from pyrmq_core.columnar.arrays import constant, keep_freed_memory, of_type
from pyrmq_core.columnar.decoding.columns import DEFAULT_COLUMNS, SOURCE_COLUMNS
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import EVERYTHING, SYSTEM_NAMES, OffsetRange
from pyrmq_core.protocol.messages.bodies import MAX_DECOMPRESSED_BYTES, BodyRules
from pyrmq_core.protocol.messages.payload import NO_BATCHES, RawPull

# The version of pyrmq-native that belongs to this code.
VERSION: Final = "0.1.0"
# The value 0 chooses the decoder in Python, even if pyrmq-native is installed.
SETTING: Final = "PYRMQ_NATIVE"
READABLE: Final = frozenset(DEFAULT_COLUMNS)
OF_PROPERTIES: Final = frozenset({"msgId", "tags", "keys", "properties"})
SYSTEM: Final = sorted(name.encode() for name in SYSTEM_NAMES)

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decoder:
    """The choice of this process between the compiled decoder and the one in Python.

    `decode` is the compiled decoder, or None. `reason` says why it was chosen. `is_refused` is True if pyrmq-native is
    installed, but cannot be loaded or has another version.
    """

    decode: Callable[..., Mapping[str, Any] | None] | None
    reason: str
    is_refused: bool = False

    @property
    def text(self) -> str:
        return f"{'pure' if self.decode is None else 'compiled'}: {self.reason}"


@cache
def decoder() -> Decoder:
    """Returns the decoder of this process. The first call chooses it and logs the choice."""
    choice = _choice()
    logger.log(logging.WARNING if choice.is_refused else logging.INFO, "the decoder of records is %s", choice.text)
    return choice


def _choice() -> Decoder:
    if os.environ.get(SETTING) == "0":
        return Decoder(None, f"{SETTING}=0")
    try:
        native = importlib.import_module("pyrmq_native")
    except ModuleNotFoundError:
        return Decoder(None, "pyrmq-native is not installed")
    except ImportError as error:
        return Decoder(None, f"pyrmq-native cannot be loaded: {error}", is_refused=True)
    if native.__version__ != VERSION:
        reason = f"pyrmq-native {native.__version__} is not of this pyrmq: install pyrmq-native=={VERSION}"
        return Decoder(None, reason, is_refused=True)
    return Decoder(native.decode, f"pyrmq-native {VERSION}")


def decode_compiled(
    pulls: Sequence[RawPull], columns: pa.Schema, within: OffsetRange, tags: TagFilter, rules: BodyRules
) -> pa.RecordBatch | None:
    """Returns the pulls' messages as one batch from the compiled decoder, or None if it cannot read them."""
    decode = decoder().decode
    if decode is None or not pulls or tags.tags or not READABLE.issuperset(columns.names):
        return None
    if (inputs := _inputs(pulls, within)) is None:
        return None
    keep_freed_memory()
    has_properties = not OF_PROPERTIES.isdisjoint(columns.names)
    vectors = decode(inputs, SYSTEM, rules.verify_crc, "body" in columns.names, has_properties)
    if vectors is None:
        return None
    rows = vectors["rows"]
    texts = {"topic": vectors["topic"].decode(), "brokerName": pulls[0].queue.broker_name}
    if rows * max(map(len, texts.values())) > MAX_DECOMPRESSED_BYTES // 4:  # a long name in each row
        return None
    arrays = [
        constant(texts[field.name], rows) if field.name in texts else _array(field.name, rows, vectors)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(list(map(of_type, arrays, columns)), schema=columns)


def _inputs(pulls: Sequence[RawPull], within: OffsetRange) -> list[tuple[object, ...]] | None:
    """Returns the compiled decoder's arguments for each pull, or None if it cannot read one of the pulls."""
    low, high = max(within.start, EVERYTHING.start), min(within.end, EVERYTHING.end)
    if low > high:
        return None
    queue, broker_name = None, pulls[0].queue.broker_name
    inputs: list[tuple[object, ...]] = []
    for pull in pulls:
        start, end = pull.start, pull.next_offset
        if not 0 <= start <= end <= EVERYTHING.end or pull.namespace or pull.passes is not None:
            return None
        if pull.queue is not queue:
            queue = pull.queue
            if queue.broker_name != broker_name:
                return None
            allows_batches = not queue.topic.startswith(NO_BATCHES)
        first, last = start if start > low else low, end if end < high else high
        inputs.append((pull.records, first, last, queue.queue_id, pull.is_unfiltered, allows_batches))
    return inputs


def _array(name: str, rows: int, vectors: Mapping[str, Any]) -> pa.Array:
    kind = SOURCE_COLUMNS[name].type
    if name == "properties":
        names, values = (_texts(pa.string(), vectors[part]) for part in ("names", "values"))
        return pa.MapArray.from_arrays(_numbers(pa.int32(), rows + 1, vectors["pairs"]), names, values)
    if isinstance(vectors[name], tuple):
        return _texts(kind, vectors[name])
    return _numbers(kind, rows, vectors[name])


def _texts(kind: pa.DataType, parts: tuple[Any, Any, Any]) -> pa.Array:
    valid = None if parts[0] is None else pa.py_buffer(parts[0])
    bounds, octets = map(pa.py_buffer, parts[1:])
    return pa.Array.from_buffers(kind, bounds.size // 4 - 1, [valid, bounds, octets])


def _numbers(kind: pa.DataType, count: int, vector: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(vector)])
