"""What decoding gives: a record batch, and the pulls that are left behind it."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pyrmq_core.protocol.messages.payload import RawPull


class DecodedBatch(NamedTuple):
    """Some of the messages of pulls, and what is left of the pulls behind them."""

    batch: pa.RecordBatch
    rest: tuple[RawPull, ...] = ()
