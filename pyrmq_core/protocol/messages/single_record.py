"""The one message of a request whose body is a stored record: a transaction's half message, or one to consume again."""

from __future__ import annotations

from pyrmq_core.errors import RecordError
from pyrmq_core.model import MessageExt, MessageQueue, PullStatus
from pyrmq_core.protocol.messages.payload import RawPull, decode
from pyrmq_core.protocol.messages.record import unpack_record


def single_message(record: bytes, broker_name: str, what: str) -> MessageExt:
    """Returns the message; `RecordError`, which names `what`, unless the bytes hold exactly one."""
    queue = MessageQueue("", broker_name, unpack_record(record, 0).queue_id)
    messages = decode(RawPull(queue, 0, 0, 0, 0, PullStatus.FOUND, record))
    if len(messages) != 1:
        raise RecordError(f"{what} holds {len(messages)} messages instead of one")
    return messages[0]
