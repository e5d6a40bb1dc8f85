"""Messages that may share requests: checked once, with all of their properties written but for their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES, check_message, is_retry_topic
from pyrmq_core.protocol.messages.properties import message_properties_string, properties_around_id

EMPTY_BATCH: Final = "a batch holds at least one message"
# Properties of fewer characters fit into a message, with an id and however long their bytes are.
SHORT_CHARS: Final = 8_000
# Any one: messages get their ids when they are sent.
UNIQUE_ID: Final = "0" * 32


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """Messages of one topic and wait flag; `ends` is what stands before and after UNIQ_KEY in each one's properties."""

    messages: tuple[Message, ...]
    ends: Sequence[tuple[str, str]]

    def part(self, places: Sequence[int]) -> CheckedBatch:
        """Returns the messages at these places, in their order."""
        return CheckedBatch(tuple([self.messages[place] for place in places]), [self.ends[place] for place in places])


def checked_batch(messages: Sequence[Message], max_message_bytes: int = MAX_MESSAGE_BYTES) -> CheckedBatch:
    """Returns the messages checked; `InvalidMessage` names the rule that one of them, or all together, break.

    Whether each is short enough for a batch is known when its request is written.
    """
    whole = tuple(messages)
    for message in whole:
        check_message(message, max_message_bytes)
    if not whole:
        raise InvalidMessage(EMPTY_BATCH)
    check_batch(whole)
    return CheckedBatch(whole, [checked_ends(message) for message in whole])


def checked_ends(message: Message) -> tuple[str, str]:
    """Returns `properties_around_id`, checked for length too."""
    ends = before, after = properties_around_id(message)
    if len(before) + len(after) > SHORT_CHARS:
        message_properties_string(message, UNIQUE_ID)
    return ends


def check_batch(messages: Sequence[Message]) -> None:
    """Raises `InvalidMessage` for messages that cannot stand in one batch together."""
    head = messages[0]
    if is_retry_topic(head.topic):
        raise InvalidMessage(f"topic {head.topic}: retry topics take no batches; send one message at a time")
    topic, waits = head.topic, head.wait_store_msg_ok
    for index, message in enumerate(messages):
        if message.topic != topic:
            raise InvalidMessage(
                f"a batch has one topic; message {index} is for {message.topic}, the first for {topic}"
            )
        if message.wait_store_msg_ok != waits:
            raise InvalidMessage(f"a batch has one wait_store_msg_ok; message {index} of {topic} differs")
        if message.delay_level is not None or message.deliver_at is not None or message.delay is not None:
            raise InvalidMessage(f"a batch cannot be delayed; message {index} of {topic} is: send it alone")
