"""The entries of the revive log, the topic with the state of pops: checkpoints and acknowledgements.

An acknowledgement refers to a checkpoint by the key of that.

    member   of              content
    t, c     both            topic and group
    q, so    both            queue, and the offset where the pop began
    pt, bn   both            time of the pop in ms, and broker
    it       checkpoint      invisible time in ms
    d, n     checkpoint      distance of each message from `so`, and number of messages
    bm       checkpoint      bits of acknowledged messages
    rp       checkpoint      how often it was written again
    ao       ack             offset of the acknowledged message
    aol      batch ack       offsets of the acknowledged messages

Source: store/pop/PopCheckPoint.java, AckMsg.java, BatchAckMsg.java, common/PopAckConstants.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.properties import TAGS, TIMER_DELIVER_MS, decode_java_utf8, decode_properties
from pyrmq_core.protocol.messages.record import RawRecord

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
# A checkpoint enters the revive log this long before its messages become visible again.
AHEAD_MS: Final = 1000
# The most messages of a checkpoint, which has a bit of one int for each.
MOST_MESSAGES: Final = 32


class BadEntry(Exception):
    """Raised for a record of the revive log that is neither a checkpoint nor an acknowledgement."""


class PopKey(NamedTuple):
    """The key of a checkpoint, by which acknowledgements refer to it: the queue, time and first offset of the pop."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    broker_name: str

    def members(self) -> dict[str, Any]:
        return {
            "bn": self.broker_name,
            "c": self.group,
            "pt": self.pop_time_ms,
            "q": self.queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }

    def unique_id(self, tag: str, offset: int | str) -> str:
        named = (self.topic, self.queue_id, offset, self.group, self.pop_time_ms, self.broker_name, tag)
        return "@".join(map(str, named))


@dataclass(frozen=True, slots=True)
class CheckPoint:
    """The record of a pop, which hides the messages at `offsets` for `invisible_ms` after the pop's time in `key`.

    It is stored in the revive log under the message tag `tag`.
    """

    key: PopKey
    invisible_ms: int
    offsets: tuple[int, ...]
    tag: str = CHECK_POINT_TAG

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.key.group, self.key.topic, "CK"

    @property
    def revive_ms(self) -> int:
        return self.key.pop_time_ms + self.invisible_ms

    @property
    def deliver_ms(self) -> int:
        return self.revive_ms - AHEAD_MS

    @property
    def unique_id(self) -> str:
        return self.key.unique_id(self.tag, self.key.start_offset)

    @property
    def body(self) -> bytes:
        added = {
            "bm": 0,
            "d": [offset - self.key.start_offset for offset in self.offsets],
            "it": self.invisible_ms,
            "n": len(self.offsets),
            "reviveTime": self.revive_ms,
            "ro": 0,
        }
        return dumps(dict(sorted({**added, **self.key.members()}.items())))


@dataclass(frozen=True, slots=True)
class Ack:
    """The acknowledgement of messages of the checkpoint `key`. Without it they become visible again at `revive_ms`.

    It is stored in the revive log. The message tag `tag` says whether it acknowledges one message or a batch.
    """

    key: PopKey
    offsets: tuple[int, ...]
    revive_ms: int
    tag: str = ACK_TAG

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.key.group, self.key.topic, "ACK"

    @property
    def deliver_ms(self) -> int:
        return self.revive_ms

    @property
    def unique_id(self) -> str:
        offset = self.offsets[0] if self.tag == ACK_TAG else f"[{', '.join(map(str, self.offsets))}]"
        return self.key.unique_id(self.tag, offset)

    @property
    def body(self) -> bytes:
        if self.tag == ACK_TAG:
            return dumps({"ao": self.offsets[0], **self.key.members()})
        return dumps({"ao": -1, "aol": list(self.offsets), **self.key.members()})


ReviveEntry: TypeAlias = CheckPoint | Ack


def read_entry(record: RawRecord, own_broker: str) -> tuple[ReviveEntry, int]:
    """Decodes an entry of the revive log, and returns it with its delivery time in ms.

    Raises `BadEntry` for a malformed record. An entry that an older broker wrote names no broker, and gets the name
    `own_broker`.
    """
    properties = decode_properties(decode_java_utf8(record.properties))
    tag = properties.get(TAGS, "")
    try:
        members = load_object(record.body, "revive entry")
        key = PopKey(
            _text(members["t"]),
            _text(members["c"]),
            int_member(members["q"]),
            long_member(members["so"]),
            long_member(members["pt"]),
            _text(members.get("bn") or own_broker),
        )
        deliver_ms = int(properties.get(TIMER_DELIVER_MS, "0")[:19])
        if tag == CHECK_POINT_TAG:
            return _check_point(key, members), deliver_ms
        if tag == ACK_TAG:
            return Ack(key, (long_member(members["ao"]),), deliver_ms), deliver_ms
        if tag == BATCH_ACK_TAG:
            listed = members.get("aol") or members.get("ackOffsetList") or ()
            return Ack(key, tuple(map(long_member, listed)), deliver_ms, tag), deliver_ms
    except (BodyError, KeyError, TypeError, ValueError) as error:
        raise BadEntry(f"a {tag[:20]!r} of the revive log: {error!r}") from error
    raise BadEntry(f"the revive log has the tag {tag[:20]!r}")


def _check_point(key: PopKey, members: Mapping[str, Any]) -> CheckPoint:
    number, bits = int_member(members["n"]), int_member(members.get("bm") or 0)
    if not 0 <= number <= MOST_MESSAGES:
        raise ValueError(f"it has {number} messages")
    distances = list(map(int_member, members.get("d") or range(number)))
    if len(distances) != number:
        raise ValueError(f"it has {number} messages, and {len(distances)} distances")
    offsets = tuple(key.start_offset + distance for at, distance in enumerate(distances) if not bits >> at & 1)
    return CheckPoint(key, long_member(members["it"]), offsets)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{str(value)[:40]!r} is no name")
    return value
