"""Decodes pulled records into the messages that handlers receive, filtered and with their original topics. Pure.

Sources: client/impl/consumer/PullAPIWrapper.java (processPullResult), DefaultMQPushConsumerImpl.java
(resetRetryAndNamespace), 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.client.consumer.group.subscriptions import Filter
from pyrmq_core.model import MessageExt, OffsetRange
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES, BodyRules
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import RawPull, messages_of
from pyrmq_core.protocol.messages.properties import RETRY_TOPIC

RULES: Final = BodyRules(verify_crc=True, max_body_bytes=MAX_BODY_BYTES)


@dataclass(frozen=True, slots=True)
class Receiver:
    """A decoder, which turns the records pulled from one queue into the messages that pass the subscription's `filter`.

    It removes the consumer's `namespace` from topics, and gives a message of the retry topic its original topic.
    `rules` say how bodies are checked and decompressed.
    """

    filter: Filter
    namespace: str | None = None
    rules: BodyRules = RULES

    def messages(self, pull: RawPull, *, allow_gaps: bool = False) -> tuple[list[MessageExt], int]:
        """Returns the messages of a pull that pass the filter, in offset order, and the offset of the next pull.

        If the decompressed bodies are too large together, the result ends early, and its offset is lower than the
        pull's next offset. Raises `RecordError` for unreadable records, and `DataLost` for offsets without a message
        unless `allow_gaps`.
        """
        own = OffsetRange(pull.start, max(pull.start, pull.next_offset))
        messages, left_out = messages_of(pull, own, self.rules, allow_gaps=allow_gaps)
        return self.wanted(pull, messages), pull.next_offset if left_out is None else left_out

    def wanted(self, pull: RawPull, messages: list[MessageExt]) -> list[MessageExt]:
        if not self.filter.passes_all:
            matches = self.filter.matches
            messages = [message for message in messages if matches(message.properties.get("TAGS"))]
        if self.namespace is not None or pull.queue.topic.startswith(RETRY_PREFIX):
            return [self.as_sent(message) for message in messages]
        return messages

    def as_sent(self, message: MessageExt) -> MessageExt:
        topic = message.topic
        if topic.startswith(RETRY_PREFIX):
            topic = message.properties.get(RETRY_TOPIC, topic)
        return replace(message, topic=without_namespace(topic, self.namespace))
