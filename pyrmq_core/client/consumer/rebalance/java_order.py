"""The order of queues and client ids (MessageQueue.compareTo, String.compareTo).

Every member sorts for itself before it allocates, so one that sorts otherwise takes queues of others and leaves some
unread. Java compares UTF-16 units: upper case stands before lower case, `b-10` before `b-2`, and characters above
U+FFFF, which are two surrogates there, before U+E000.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyrmq_core.model import MessageQueue


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Returns the queues by topic, broker name and queue id."""
    return sorted(queues, key=lambda queue: (utf16(queue.topic), utf16(queue.broker_name), queue.queue_id))


def sort_client_ids(client_ids: Iterable[str]) -> list[str]:
    """Returns the ids in the order of Java's strings."""
    return sorted(client_ids, key=utf16)


def utf16(text: str) -> bytes:
    """Returns bytes that compare as Java's strings do."""
    return text.encode("utf-16-be", "surrogatepass")
