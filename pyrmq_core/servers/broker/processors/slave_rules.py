"""The requests that a slave refuses, since only a master stores messages and changes topics, groups and offsets.

Source: broker/processor/SendMessageProcessor.java, AdminBrokerProcessor.java, EndTransactionProcessor.java (5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.handlers import Answer, Handler
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings

SENDS: Final = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
MESSAGES: Final = SENDS | {
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.RECALL_MESSAGE,
}
PULLS: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
POPS: Final = frozenset(
    (
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    )
)
TRANSACTIONS: Final = frozenset((RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE))
CHANGES: Final = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    )
)


@dataclass(frozen=True, slots=True)
class SlaveRules:
    """A slave's handler of requests. It refuses requests that only a master may serve. `respond` handles the others."""

    settings: LiveSettings
    identity: Identity
    registration: BrokerRegistration
    acting: ActingMaster | None
    respond: Handler

    def answer(self, request: Command, peer: Peer) -> Answer:
        code, name = request.code, f"{self.settings.config.broker_name} at {self.identity.address}"
        address = self.registration.master_address
        master = "master" if address is None else f"master at {address}"
        if self.acting is not None and code in SENDS:
            text = f"nothing is stored: {name} is a slave, and only acts in the place of its {master}"
            return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, text)
        if self.acting is not None and code == RequestCode.CONSUMER_SEND_MSG_BACK:
            ip = self.settings.config.advertised_ip
            text = f"no master available along with {ip}: {name} is a slave, and stores nothing"
            return refusal(ResponseCode.SYSTEM_ERROR, text)
        if code in MESSAGES:
            text = f"[REJECTREQUEST]not stored: {name} is a slave; send to its {master}"
            return refusal(ResponseCode.SYSTEM_BUSY, text)
        is_read = self.settings.config.slave_read_enable or (self.acting is not None and self.acting.is_acting)
        if code in PULLS and not is_read:
            text = f"[REJECTREQUEST]{name} is a slave that is not read; set slaveReadEnable=true, or read its {master}"
            return refusal(ResponseCode.SYSTEM_BUSY, text)
        if code in POPS:
            return refusal(ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]{name} is a slave; pop at its {master}")
        if code in TRANSACTIONS:
            text = f"{name} is a slave, and ends no transaction; ask its {master}"
            return refusal(ResponseCode.SLAVE_NOT_AVAILABLE, text)
        if code in CHANGES:
            return refusal(ResponseCode.SYSTEM_ERROR, f"nothing is changed: {name} is a slave; ask its {master}")
        return self.respond(request, peer)
