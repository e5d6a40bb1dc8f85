"""The receipt of a popped message, sent as `extraInfo` with later requests, and the retry topics of groups that pop.

    word    content
    0       first offset of the messages that one pop took from the queue
    1       pop time, in ms since 1970
    2       invisible time in ms
    3       queue of the revive topic where the pop is recorded, 999 for an ordered pop
    4       topic of the message: 0 the popped topic, 1 and 2 a retry topic of the older and the newer form
    5       broker
    6       queue
    7       offset of the message in its queue

A receipt contains no address, so it stays valid when the broker restarts. The offset of a message is never below the
first offset of its pop. A message of a lite topic has queue 0 and its offset in the lite topic, whose name is not part
of the text.
Sources: remoting/protocol/header/ExtraInfoUtil.java, common/KeyBuilder.java, 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.java.integers import parse_int, parse_long
from pyrmq_core.protocol.messages.names import RETRY_PREFIX

SEPARATOR: Final = " "
WORDS: Final = 8
# The offsets of one pop's messages in a queue are within a range of this size, since a batch of acknowledgements has a
# bit for each of them.
MOST_SPREAD: Final = 1 << 16
ORDERED_REVIVE_QUEUE: Final = 999

POPPED_TOPIC: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
MARKS: Final = frozenset((POPPED_TOPIC, RETRY_V1, RETRY_V2))
# The separators of group and topic in the older and the newer form of a retry topic's name.
RETRY_SEPARATORS: Final = {RETRY_V1: "_", RETRY_V2: "+"}


def pop_retry_topic(topic: str, group: str, mark: str) -> str:
    """Returns the name of the retry topic of a group that pops `topic`: `mark` 1 is its older form, 2 its newer."""
    return f"{RETRY_PREFIX}{group}{RETRY_SEPARATORS[mark]}{topic}"


def topic_mark(topic: str) -> str:
    """Returns the mark of a topic, a digit that stands for it in receipts and answers to pops.

    It is `1` or `2` for a retry topic with the older or the newer form of name, and `0` for any other topic.
    """
    if not topic.startswith(RETRY_PREFIX):
        return POPPED_TOPIC
    return RETRY_V2 if RETRY_SEPARATORS[RETRY_V2] in topic else RETRY_V1


@dataclass(frozen=True, slots=True)
class Receipt:
    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: str
    broker_name: str
    queue_id: int
    queue_offset: int
    lite_topic: str | None = None

    def __post_init__(self) -> None:
        check_spread(self.start_offset, self.queue_offset)

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDERED_REVIVE_QUEUE

    def real_topic(self, topic: str, group: str) -> str:
        """Returns the topic that stores a message popped by `group` from `topic`: `topic` itself or its retry topic."""
        return topic if self.mark == POPPED_TOPIC else pop_retry_topic(topic, group, self.mark)

    def encode(self) -> str:
        words = (self.start_offset, self.pop_time_ms, self.invisible_ms, self.revive_queue_id, self.mark)
        return SEPARATOR.join(map(str, (*words, self.broker_name, self.queue_id, self.queue_offset)))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Returns the receipt in a text of eight words. Raises `HeaderError` for a malformed text."""
        words = text.split(SEPARATOR)
        try:
            if len(words) != WORDS:
                raise ValueError(f"it has {len(words)} words instead of {WORDS}")
            start, popped, invisible, revive, mark, broker_name, queue, offset = words
            if mark not in MARKS:
                raise ValueError(f"its fifth word is {mark[:20]!r} instead of 0, 1 or 2")
            if not broker_name:
                raise ValueError("it names no broker")
            return cls(
                parse_long(start),
                parse_long(popped),
                parse_long(invisible),
                parse_int(revive),
                mark,
                broker_name,
                parse_int(queue),
                parse_long(offset),
            )
        except ValueError as error:
            raise HeaderError(f"receipt {text[:120]!r} is invalid: {error}") from error


# A fast constructor for the receipts of popped messages. It checks nothing, so call `check_spread` before it.
make_receipt: Final = maker_of(Receipt)


def check_spread(start_offset: int, queue_offset: int) -> None:
    if not 0 <= queue_offset - start_offset < MOST_SPREAD:
        raise HeaderError(f"receipt of offset {queue_offset} in a pop from {start_offset} on is invalid")
