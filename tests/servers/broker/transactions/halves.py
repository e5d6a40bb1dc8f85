"""Half messages for tests, as a broker stores them."""

from collections.abc import Mapping
from dataclasses import replace

from pyrmq_core.model import NO_PROPERTIES
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import pack_host
from pyrmq_core.servers.broker.store.appending import Append, build
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.transactions.half_messages import HalfMessage, half_message

BORN_MS = 1_700_000_000_000
HOST = pack_host("127.0.0.1:10911")
PROPERTIES = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U1", "REAL_TOPIC": "T", "REAL_QID": "2", "TAGS": "t"}
HALF = Append(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    queue_id=0,
    pieces=[piece(7, b"body", encode_properties(PROPERTIES).encode())],
    born_timestamp_ms=BORN_MS,
    born_host=pack_host("10.0.0.5:50000"),
    store_host=HOST,
    sys_flag=0x301,
)


def raw(append: Append, *, at: int = 6668, queue_offset: int = 5, stored_ms: int = BORN_MS + 10) -> bytes:
    """Returns the append's only record."""
    return build(append, at, queue_offset, stored_ms).records


def half(
    further: Mapping[str, str] = NO_PROPERTIES, *, queue_offset: int = 5, stored_ms: int = BORN_MS + 10
) -> HalfMessage:
    """Returns a half message at place 6668 of the log, with further properties."""
    encoded = encode_properties({**PROPERTIES, **further}).encode()
    message = half_message(
        raw(replace(HALF, pieces=[piece(7, b"body", encoded)]), queue_offset=queue_offset, stored_ms=stored_ms)
    )
    assert message is not None
    return message
