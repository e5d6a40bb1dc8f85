"""Encodes messages that share a request, in two steps.

When a message is sent, it is checked at once, and its properties are encoded except for its id. When the shared request
is sent, all its messages get their ids and are encoded together. This takes half the time of encoding each message as a
request and joining the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from pyrmq_core.model import NO_PROPERTIES, Message
from pyrmq_core.protocol.messages.batch import HEAD, OVERHEAD_BYTES, SHORT
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES, is_retry_topic
from pyrmq_core.protocol.messages.payload import WAITS_NOT, Payload, check_message
from pyrmq_core.protocol.messages.properties import checked_ends, goes_alone, plain_ends

# A message with longer properties is sent alone, and that send checks their limit in bytes. This many characters are
# below the limit even in UTF-8.
MAX_PROPERTIES_CHARS: Final = 8_000


# The bytes of a message in a batch without its body and own properties: its head, and UNIQ_KEY with an id of 32 digits.
MEMBER_BYTES: Final = OVERHEAD_BYTES + 42

# A checked message that may share a request, its properties before and after UNIQ_KEY, and its bytes in the batch. Each
# message needs one, so it is a tuple: that takes a fifth of the time of a frozen dataclass (`maker_of`).
BatchMember: TypeAlias = tuple[Message, str, str, int]

# The parts of a message until its request is sent: flag, body, properties before and after UNIQ_KEY. The garbage
# collector soon ignores a tuple of such simple values, but would visit a tuple with the message again and again.
MemberParts: TypeAlias = tuple[int, bytes, str, str]


def message_of(content: Payload | BatchMember) -> Payload | Message:
    return content[0] if isinstance(content, tuple) else content


def batch_member(
    message: Message,
    below_bytes: int,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    system_properties: Mapping[str, str] = NO_PROPERTIES,
) -> BatchMember | None:
    """Returns the checked message, ready to share a request, or None if it must be sent alone.

    A message is sent alone if it is delayed, has a priority or a lite topic, or goes to a retry topic. The same holds
    if it has large properties, or a body of `below_bytes` or more. Raises `InvalidMessage` with the rule that the
    message breaks. The producer itself sets `system_properties`.
    """
    check_message(message, max_message_bytes)
    topic, body_bytes = message.topic, len(message.body)
    if body_bytes >= below_bytes or (topic[0] == "%" and is_retry_topic(topic)):
        return None
    ends = None if system_properties else plain_ends(message)
    if ends is None:  # `plain_ends` also returns None for a message that goes alone
        if goes_alone(message):
            return None
        ends = checked_ends(message, system_properties)
    before, after = ends
    properties_chars = len(before) + len(after)
    if properties_chars > MAX_PROPERTIES_CHARS:
        return None
    return message, before, after, MEMBER_BYTES + body_bytes + properties_chars


def join_members(
    topic: str, waits: bool, members: Sequence[MemberParts], unique_ids: Sequence[str], *, single_tag: bool = False
) -> Payload:
    if len(members) == 1:
        ((flag, body, before, after),), (unique_id,) = members, unique_ids
        properties = f"{before}UNIQ_KEY\x01{unique_id}\x02{after}"
        return Payload(topic, body, 1, properties, flag=flag, unique_ids=(unique_id,))
    return Payload(
        topic=topic,
        body=_encode_members(members, unique_ids),
        count=len(members),
        properties="" if waits else WAITS_NOT,
        batch=True,
        unique_ids=tuple(unique_ids),
        single_tag=single_tag,
    )


def _encode_members(members: Sequence[MemberParts], unique_ids: Sequence[str]) -> bytes:
    # The lengths of properties are not checked, since those of batch members are short.
    pack_head, pack_short = HEAD.pack, SHORT.pack
    parts: list[bytes] = []
    for (flag, body, before, after), unique_id in zip(members, unique_ids, strict=True):
        properties = f"{before}UNIQ_KEY\x01{unique_id}\x02{after}".encode()
        body_bytes, properties_bytes = len(body), len(properties)
        head = pack_head(OVERHEAD_BYTES + body_bytes + properties_bytes, flag, body_bytes)
        parts += (head, body, pack_short(properties_bytes), properties)
    return b"".join(parts)
