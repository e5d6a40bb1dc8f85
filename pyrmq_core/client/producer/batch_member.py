"""Messages that share a request, encoded in two steps.

When a message is sent it is checked, and its properties are written but for its id. When the request leaves, its
messages get their ids together and are written one after another: together that is half the work of encoding each as a
request and joining those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.model import NO_PROPERTIES, Message
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.messages.batch import encode_batch_body
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES, check_message, is_retry_topic
from pyrmq_core.protocol.messages.payload import WAITS_NOT, Payload
from pyrmq_core.protocol.messages.properties import properties_around_id

# A message with more goes alone, where their exact limit is checked. Even encoded in UTF-8 this is below that limit.
MAX_PROPERTIES_CHARS: Final = 8_000


@dataclass(frozen=True, slots=True)
class BatchMember:
    """A message that may share a request, checked; its properties but for UNIQ_KEY are `before` and `after` it."""

    message: Message
    body: bytes
    before: str
    after: str

    @property
    def topic(self) -> str:
        return self.message.topic


_make_member: Final = maker_of(BatchMember)


def batch_member(
    message: Message,
    below_bytes: int,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    system_properties: Mapping[str, str] = NO_PROPERTIES,
) -> BatchMember | None:
    """Returns the message checked, ready to share a request; None for one that has to travel alone.

    Alone go bodies of `below_bytes` or more, delayed messages, those to retry topics, and large properties.
    `InvalidMessage` names the rule that the message breaks. `system_properties` are the producer's own.
    """
    check_message(message, max_message_bytes)
    body, topic = message.body, message.topic
    if (
        len(body) >= below_bytes
        or message.delay_level is not None
        or message.deliver_at is not None
        or message.delay is not None
        or (topic[0] == "%" and is_retry_topic(topic))
    ):
        return None
    before, after = properties_around_id(message, system_properties)
    if len(before) + len(after) > MAX_PROPERTIES_CHARS:
        return None
    return _make_member(message, body, before, after)


def join_members(members: Sequence[BatchMember], unique_ids: Sequence[str], *, single_tag: bool = False) -> Payload:
    """Returns messages of one topic and one wait flag as one request; a single one becomes no batch."""
    head = members[0].message
    if len(members) == 1:
        member, (unique_id,) = members[0], unique_ids
        return Payload(
            head.topic, member.body, 1, _properties(member, unique_id), flag=head.flag, unique_ids=(unique_id,)
        )
    return Payload(
        topic=head.topic,
        body=encode_batch_body(
            [
                # As `_properties`, without a call for each message.
                (member.message.flag, member.body, f"{member.before}UNIQ_KEY\x01{unique_id}\x02{member.after}".encode())
                for member, unique_id in zip(members, unique_ids, strict=True)
            ]
        ),
        count=len(members),
        properties="" if head.wait_store_msg_ok else WAITS_NOT,
        batch=True,
        unique_ids=tuple(unique_ids),
        single_tag=single_tag,
    )


def _properties(member: BatchMember, unique_id: str) -> str:
    return f"{member.before}UNIQ_KEY\x01{unique_id}\x02{member.after}"
