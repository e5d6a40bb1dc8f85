"""Messages of the broker's own topics that were removed with old segments before they were worked on."""

from __future__ import annotations

from typing import Final

from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.protocol.messages.names import HALF_TOPIC, TRANSACTION_GROUP

# Topic, the group whose offset is the progress of the work, and what its messages are.
OWN_WORK: Final = ((HALF_TOPIC, TRANSACTION_GROUP, "half messages of transactions"),)


def unread_lines(store: MessageStore, offsets: GroupOffsets) -> list[str]:
    """Returns a line for each queue of such a topic that lost messages behind its progress."""
    lines = []
    for topic, group, what in OWN_WORK:
        for queue_id in store.queues_of(topic):
            start, _ = store.bounds((topic, queue_id))
            done = offsets.committed(group, topic, queue_id) or 0
            if done < start:
                lines.append(
                    f"{start - done} {what} (queue {queue_id} of {topic}, from {done} on) were removed unfinished, "
                    "with old segments of the commit log: these transactions are never committed"
                )
    return lines
