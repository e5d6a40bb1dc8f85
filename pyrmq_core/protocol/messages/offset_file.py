"""The file of a broadcasting consumer's offsets: a table by queue, as Java writes it and reads it.

fastjson writes a queue as an object in the place of a name. Reading also accepts that object's text as a name, and the
text of `MessageQueue.toString`, as Jackson writes it. 5.4.0 does not read back an offset beyond 32 bits.
Source: client/consumer/store/OffsetSerializeWrapper.java, 5.4.0 and 4.9.7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.object_keys import load_key, load_object_keys
from pyrmq_core.protocol.messages.queue_tables import queue_from, queue_members

# MessageQueue.toString: a topic has no comma, a broker name may have one.
_TO_STRING: Final = re.compile(r"MessageQueue \[topic=([^,]*), brokerName=(.*), queueId=(-?\d{1,10})\]", re.DOTALL)


def load_offset_file(body: bytes, what: str) -> dict[MessageQueue, int]:
    """Returns the offsets in a file; raises `BodyError`, which names `what`."""
    table = load_object_keys(body, what).get("offsetTable") or {}
    if not isinstance(table, dict):
        raise BodyError(f"{what}: offsetTable is not a JSON object")
    try:
        return {_queue_of(name): long_member(offset) for name, offset in table.items()}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BodyError(f"{what}: an entry of offsetTable is not a queue with its offset: {error!r}") from error


def dump_offset_file(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Returns the file's text in lines with tabs, as 5.4.0 writes it, in the order of the mapping."""
    entries = b",\n".join(_entry(queue, offset) for queue, offset in offsets.items())
    table = b"{\n" + entries + b"\n\t}" if entries else b"{}"
    return b'{\n\t"offsetTable":' + table + b"\n}"


def _entry(queue: MessageQueue, offset: int) -> bytes:
    members = b",\n".join(b"\t\t\t" + dumps(name) + b":" + dumps(value) for name, value in queue_members(queue).items())
    return b"\t\t{\n" + members + b"\n\t\t}:" + dumps(offset)


def _queue_of(name: str) -> MessageQueue:
    if found := _TO_STRING.fullmatch(name):
        return MessageQueue(found[1], found[2], int_member(found[3]))
    return queue_from(load_key(name))
