"""Batch topics of 5.x (`queue.type=BatchCQ`): the properties that make a broker store a batch as one record.

The broker stores a batch as one record if the request's own properties have a UNIQ_KEY. Otherwise it stores a record
for each message, as in other topics. Filters see only the properties of the record, so these must name the tag, and all
messages must have the same tag. Brokers before 5.4 would show the request's UNIQ_KEY as the id of every message.
Producers therefore send such brokers batches without UNIQ_KEY.
Source: broker/processor/SendMessageProcessor.java (sendBatchMessage), store/queue/BatchConsumeQueue.java, 5.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyrmq_core.protocol.messages.batch import MAX_SHORT, iterate_batch_body
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import (
    TAGS,
    UNIQ_KEY,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE: Final = "BatchCQ"
# Brokers parse the number of messages (INNER_NUM) as a short: for a larger batch they raise NumberFormatException.
MAX_RECORD_MESSAGES: Final = MAX_SHORT


def is_batch_topic(attributes: Mapping[str, str]) -> bool:
    return attributes.get(QUEUE_TYPE) == BATCH_QUEUE


def can_be_one_record(payload: Payload) -> bool:
    """Returns whether a batch topic can store a payload as one record.

    The payload has to be an uncompressed batch of at most 32,767 messages with the same tag.
    """
    return payload.batch and payload.single_tag and not payload.sys_flag and payload.count <= MAX_RECORD_MESSAGES


def record_properties(payload: Payload, record_id: str) -> str:
    """Returns a request's properties that make its batch one record: `record_id` as UNIQ_KEY, and the messages' tag."""
    first = next(iterate_batch_body(payload.body))
    tag = decode_properties(decode_java_utf8(bytes(first.properties))).get(TAGS)
    own = {UNIQ_KEY: record_id, **decode_properties(payload.properties)}
    return encode_properties(own if tag is None else {**own, TAGS: tag})
