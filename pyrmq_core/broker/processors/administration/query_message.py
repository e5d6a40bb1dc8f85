"""Stored messages by key and by place: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33).

The index holds hashes, so an answer may have records of another key or topic, which clients leave out. A look-up by
unique key takes defaultQueryMaxNum for its number, every other one at most maxMsgsNumBatch.
Sources: broker/processor/QueryMessageProcessor.java, store/DefaultMessageStore.java queryMessage (5.4.0).
"""

from __future__ import annotations

import re
from typing import Final

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.store_services.key_indexing import Found
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage

OFFSET: Final = re.compile(r"-?[0-9]{1,19}")
NOT_FOUND: Final = "can not find message, maybe time range not correct"
BUSY: Final = "too many look-ups by key wait for their turn; try again later"
NOTHING: Final = Found([], (0, 0))
# A frame has at most 16 MiB.
MAX_ANSWER_BYTES: Final = 15 << 20


async def query_message(broker: Broker, request: Command, _: Peer) -> Command:
    """Returns the newest records under a key that were stored between two times, in the order of the log."""
    header, config = QueryMessage.from_command(request), broker.config
    most = config.default_query_max_num if header.by_unique_key else header.max_num
    if not config.index_file_read_enable:
        return _answer(NOTHING)
    key = (header.topic, header.key, None if header.by_unique_key else header.index_type)
    times_ms = (header.begin_ms, header.end_ms)
    found = await broker.index.look_up(key, min(most, config.max_msgs_num_batch), times_ms, MAX_ANSWER_BYTES)
    return refusal(ResponseCode.SYSTEM_BUSY, BUSY) if found is None else _answer(found)


def _answer(found: Found) -> Command:
    answer = MessagesFound(*found.last_update, b"".join(found.records)).to_command()
    return answer if found.records else refusal(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, answer.ext)


def view_message(broker: Broker, request: Command, _: Peer) -> Command:
    """Returns the record that begins at a place of the log."""
    text = request.ext.get("offset", "")
    if not OFFSET.fullmatch(text):
        return refusal(ResponseCode.INVALID_PARAMETER, f"field offset is {text[:80]!r}; a place in the log is a number")
    record = broker.store.record(int(text))
    if record is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {text}")
    return success(body=record)
