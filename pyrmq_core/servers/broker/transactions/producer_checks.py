"""The check of a half message: CHECK_TRANSACTION_STATE (39), sent to a connected producer of its group.

Sources: broker/transaction/AbstractTransactionalMessageCheckListener.java, broker/client/ProducerManager.java
(getAvailableChannel), broker/client/net/Broker2Client.java (5.4.0).
"""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import Final

from pyrmq_core.errors import NetworkError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.names import HALF_TOPIC
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import INT, encode_record, unpack_host
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.transactions.half_messages import HalfMessage

CHECK_SECONDS: Final = 3.0


class ProducerChecks:
    """The sender of transaction checks. Each is sent to one connected producer of the half message's group, in turn.

    The producer answers with a commit or rollback later, or not at all.
    """

    def __init__(self, clients: ClientTable, broker_name: str) -> None:
        self._clients = clients
        self._broker_name = broker_name
        self._turn = itertools.count()
        self._missed: set[int] = set()  # the queue offsets of half messages whose check could not be written

    def can_reach(self, group: str) -> bool:
        return any(map(_reads, self._clients.producers.get(group, ())))

    def was_missed(self, queue_offset: int) -> bool:
        return queue_offset in self._missed

    def forget(self, position: int) -> None:
        self._missed = {queue_offset for queue_offset in self._missed if queue_offset >= position}

    def send(self, half: HalfMessage) -> bool:
        """Sends a check in the background. Returns False if the group has no connected producer that can receive it."""
        members = list(self._clients.producers.get(half.producer_group, ()))
        start = next(self._turn)
        for step in range(len(members)):
            peer: Peer = members[(start + step) % len(members)]
            if not _reads(peer):
                continue
            with contextlib.suppress(NetworkError):
                command = check_request(half, self._broker_name).to_command().oneway()
                peer.connection.post(command, timeout=CHECK_SECONDS, done=partial(self._sent, half.queue_offset))
                return True
        self._missed.add(half.queue_offset)
        return False

    def _sent(self, queue_offset: int, outcome: object) -> None:
        if isinstance(outcome, Exception):
            self._missed.add(queue_offset)


def _reads(peer: Peer) -> bool:
    return not peer.connection.is_full


def check_request(half: HalfMessage, broker_name: str) -> CheckTransactionState:
    """Returns the request that checks a half message. Its record is the message with its real topic and queue."""
    record = half.record
    ip, (port,) = record.store_host[:-4], INT.unpack(record.store_host[-4:])
    return CheckTransactionState(
        tran_state_table_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        msg_id=half.unique_id,
        transaction_id=half.unique_id,
        offset_msg_id=offset_msg_id(ip, port, record.commit_log_offset),
        topic=HALF_TOPIC,
        broker_name=broker_name,
        record=encode_record(
            topic=half.real_topic,
            queue_id=half.real_queue_id,
            queue_offset=record.queue_offset,
            commit_log_offset=record.commit_log_offset,
            body=record.body,
            properties=encode_properties(half.properties).encode("utf-8", "replace"),
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=unpack_host(record.born_host),
            store_timestamp_ms=record.store_timestamp_ms,
            store_host=unpack_host(record.store_host),
            flag=record.flag,
            sys_flag=record.sys_flag,
            reconsume_times=record.reconsume_times,
        ),
    )
