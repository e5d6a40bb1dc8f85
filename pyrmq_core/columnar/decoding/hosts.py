"""The hosts of many messages as text, and the offset message ids that begin with a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import Ints, Octets, as_string, fixed_spans, take_unchecked
from pyrmq_core.columnar.decoding.rows import Rows
from pyrmq_core.protocol.messages.record import unpack_host

# Two upper-case hexadecimal digits for each byte, as one number.
HEX: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint16)


def host_texts(rows: Rows, name: str) -> pa.Array:
    """Returns `ip:port` of each message's `born_host` or `store_host`; each different host is formatted once."""
    return _by_version(rows, name, _texts)


def offset_msg_ids(rows: Rows) -> pa.Array:
    """Returns each message's store host and commit-log offset in hexadecimal digits: 32, or 56 with IPv6."""
    offsets = rows.head("commit_log_offset").astype(">i8").view(np.uint8).reshape(len(rows), 8)

    def ids(hosts: Octets, messages: Ints) -> pa.Array:
        return hexadecimal(np.concatenate((hosts, offsets[messages]), axis=1))

    return _by_version(rows, "store_host", ids)


def hexadecimal(values: Octets) -> pa.Array:
    """Returns the rows of a matrix of bytes as strings of upper-case hexadecimal digits."""
    return as_string(fixed_spans(HEX[values].view(np.uint8)))


def _texts(hosts: Octets, _: Ints) -> pa.Array:
    encoded = fixed_spans(hosts).dictionary_encode()
    texts = [unpack_host(host) for host in encoded.dictionary.to_pylist()]
    return take_unchecked(pa.array(texts, pa.string()), encoded.indices)


def _by_version(rows: Rows, name: str, made: Callable[[Octets, Ints], pa.Array]) -> pa.Array:
    """Returns the results of `made` for all messages, in their order.

    `made` is called for the IPv4 hosts, and again for the IPv6 hosts if there are any: with a matrix of packed hosts
    and the numbers of their messages.
    """
    v6 = rows.has_v6(name)
    if not v6.any():
        return made(rows.host(name, v6=False), np.arange(len(rows)))
    parts = [np.flatnonzero(~v6), np.flatnonzero(v6)]
    arrays = [made(rows.host(name, v6=bool(kind)), part) for kind, part in enumerate(parts)]
    place = np.empty(len(rows), np.int64)
    place[np.concatenate(parts)] = np.arange(len(rows))
    return take_unchecked(pa.concat_arrays(arrays), pa.array(place))
