"""The result of decoding: a record batch, and the pulls that are not decoded yet."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pyrmq_core.protocol.messages.payload import RawPull


class DecodedBatch(NamedTuple):
    """A batch of some pulls' messages, and the pulls that hold the messages after it."""

    batch: pa.RecordBatch
    rest: tuple[RawPull, ...] = ()
