"""The permissions that plain ACL requires for each request, and the requests that only administrators may send.

Permissions for a group are listed under the name of its retry topic. Source: acl/plain/PlainAccessValidator.java,
acl/common/Permission.java (4.9.7). These checks are stricter than 4.9.7's:

- A batch (320) is checked as a single send, and a lite pull (361) as a pull.
- A send to a retry topic requires SUB for the topic's group.
- The end of a transaction requires PUB for its topic, if it names one.
- Locks and resets of offsets require SUB for their group.
- Only administrators may change access rules, several topics or groups at once, or a group's other settings, and remove
  files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.names import RETRY_PREFIX, is_retry_topic, owner_topic, popped_topic
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.requests.broker.lock_queues import LockQueues
from pyrmq_core.protocol.requests.pop.assignments import QueryAssignment
from pyrmq_core.protocol.requests.pop.lite import LiteSubscriptionCtl
from pyrmq_core.protocol.requests.pop.settle import BatchAckMessage
from pyrmq_core.servers.access.plain.permissions import PUB, SUB

Needs = dict[str, int]

ADMIN_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)


def needs_of(request: Command) -> Needs:
    """Returns the permissions that a request needs. Raises `BodyError` if its body cannot be decoded."""
    find = _NEEDS.get(request.code)
    return {} if find is None else find(request)


def _send(field: str) -> Callable[[Command], Needs]:
    def needs(request: Command) -> Needs:
        topic = request.ext.get(field)
        return {} if topic is None else {topic: SUB if is_retry_topic(topic) else PUB}

    return needs


def _reads(*fields: str) -> Callable[[Command], Needs]:
    """Returns a rule that requires SUB for the topic in the header field `topic` and the group in any other field."""

    def needs(request: Command) -> Needs:
        needed = {}
        for field in fields:
            if (name := request.ext.get(field)) is not None:
                needed[owner_topic(name) if field == "topic" else RETRY_PREFIX + name] = SUB
        return needed

    return needs


def _heart_beat(request: Command) -> Needs:
    needed = {}
    for data in HeartBeat.from_command(request).consumers:
        needed[RETRY_PREFIX + data.group_name] = SUB
        needed.update((subscription.topic, SUB) for subscription in data.subscriptions)
    return needed


def _pops(request: Command) -> Needs:
    topic, group = request.ext.get("topic"), request.ext.get("consumerGroup")
    return _popped([] if topic is None or group is None else [(topic, group)])


def _batch_ack(request: Command) -> Needs:
    return _popped([(entry.topic, entry.consumer_group) for entry in BatchAckMessage.from_command(request).entries])


def _assignment(request: Command) -> Needs:
    query = QueryAssignment.from_command(request)
    return _popped([(query.topic, query.consumer_group)])


def _lite_subscriptions(request: Command) -> Needs:
    changes = LiteSubscriptionCtl.from_command(request).changes if request.body else ()
    return _popped([(change.topic, change.group) for change in changes])


def _popped(pairs: Iterable[tuple[str, str]]) -> Needs:
    needed = {}
    for topic, group in pairs:
        needed[popped_topic(topic, group)] = needed[RETRY_PREFIX + group] = SUB
    return needed


def _locks(request: Command) -> Needs:
    return {RETRY_PREFIX + LockQueues.from_command(request).consumer_group: SUB}


_NEEDS: Final[Mapping[int, Callable[[Command], Needs]]] = {
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.RECALL_MESSAGE: _send("topic"),
    RequestCode.END_TRANSACTION: _send("topic"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _reads("group"),
    RequestCode.PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.POP_MESSAGE: _pops,
    RequestCode.POP_LITE_MESSAGE: _pops,
    RequestCode.LITE_SUBSCRIPTION_CTL: _lite_subscriptions,
    RequestCode.ACK_MESSAGE: _pops,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pops,
    RequestCode.NOTIFICATION: _pops,
    RequestCode.POLLING_INFO: _pops,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.QUERY_MESSAGE: _reads("topic"),
    RequestCode.HEART_BEAT: _heart_beat,
    RequestCode.UNREGISTER_CLIENT: _reads("consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _reads("consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _reads("consumerGroup", "topic"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _reads("group", "topic"),
    RequestCode.TRIGGER_LITE_DISPATCH: _reads("group"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
}
