"""Helpers for tests of transactions: a listener, the states, and a broker's end of the connection for its checks."""

from __future__ import annotations

import threading

from pyrmq_core import Client, LocalTransactionState, MessageExt
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from tests.support.stage import Stage

END = RequestCode.END_TRANSACTION
BEAT = RequestCode.HEART_BEAT
COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)
HALF = MessageStored(
    msg_ids="7F00000100002A9F0000000000001A0C", queue_id=0, queue_offset=5, transaction_id="TID", region_id="R"
)


class Listener:
    """Answers checks with `state`, and keeps them."""

    def __init__(self, state: LocalTransactionState = COMMIT) -> None:
        self.state = state
        self.checked: list[MessageExt] = []
        self.threads: set[str] = set()

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.checked.append(message)
        self.threads.add(threading.current_thread().name)
        return self.state


def half_record(group: str = "g", topic: str = "orders") -> bytes:
    return encode_record(
        topic=topic,
        queue_id=3,
        queue_offset=9,
        commit_log_offset=7777,
        body=b"half",
        properties=f"PGROUP\x01{group}\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01U-1\x02TAGS\x01t\x02",
        born_timestamp_ms=1,
        born_host="127.0.0.1:1",
        store_timestamp_ms=2,
        store_host="127.0.0.1:2",
    )


CHECK = CheckTransactionState(
    tran_state_table_offset=9,
    commit_log_offset=7777,
    msg_id="U-1",
    transaction_id="TX-1",
    offset_msg_id="O-1",
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    broker_name="broker-a",
    record=half_record(),
)


async def checking_peer(stage: Stage, client: Client) -> Peer:
    """Returns broker-a's end of the connection that had the heartbeat."""
    server = stage.brokers["broker-a"]
    await client._session.routes.refresh("orders")
    await client._session.heartbeats.send_now(server.address)
    return server.seen[-1].peer


async def check(stage: Stage, client: Client, requested: CheckTransactionState = CHECK) -> Peer:
    peer = await checking_peer(stage, client)
    await peer.connection.send_oneway(requested.to_command(), timeout=3)
    return peer
