"""The rights that each request needs: actions on topics, groups and clusters.

A request may need several rights. For each right, the user must be allowed at least one of its actions. Any user may
send a request that is not listed here. Some listed requests need no right in 5.4.0: lite pulls (361), changes of
settings (25, 318), of groups (200, 225) and of lists of topics (18), and the removal of files (306, 316, 329). Sources:
auth/authorization/builder/DefaultAuthorizationContextBuilder.java, and the annotations of
remoting/protocol/header/*.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.messages.names import RETRY_PREFIX, is_retry_topic, owner_topic, popped_topic
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.requests.broker.lock_queues import LockQueues
from pyrmq_core.protocol.requests.pop.assignments import QueryAssignment, SetRequestMode
from pyrmq_core.protocol.requests.pop.lite import LiteSubscriptionCtl
from pyrmq_core.protocol.requests.pop.settle import BatchAckMessage

TOPIC, GROUP, CLUSTER = "Topic", "Group", "Cluster"
SUB: Final = ("Sub",)


@dataclass(frozen=True, slots=True)
class Need:
    """A right that a request needs: one of `actions` on a resource. `name` is None if the request does not name it."""

    kind: str
    name: str | None
    actions: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.kind}:{'null' if self.name is None else self.name}"


# Returns the rights that a request to a server of the named cluster needs.
Finder: TypeAlias = Callable[[Command, str], Iterable[Need]]


def needs_of(request: Command, cluster: str) -> list[Need]:
    """Returns the rights that a request needs at a server of the cluster. Raises `BodyError` for a malformed body."""
    find = _NEEDS.get(request.code)
    return [] if find is None else list(find(request, cluster))


def _topic(topic: str | None, *actions: str) -> Need:
    if topic is not None and is_retry_topic(topic):
        return Need(GROUP, topic.removeprefix(RETRY_PREFIX), actions)
    return Need(TOPIC, topic and owner_topic(topic), actions)


def _group(group: str | None, *actions: str) -> Need:
    return Need(GROUP, None if group is None else group.removeprefix(RETRY_PREFIX), actions)


def _send(field: str) -> Finder:
    def find(request: Command, _: str) -> Iterable[Need]:
        topic = request.ext.get(field)
        return [_topic(topic, "Sub" if is_retry_topic(topic or "") else "Pub")]

    return find


def _group_and_topic(*actions: str) -> Finder:
    def find(request: Command, _: str) -> Iterable[Need]:
        group = _group(request.ext.get("consumerGroup"), *actions)
        return [_topic(request.ext.get("topic"), *actions), group]

    return find


def _one_topic(*actions: str) -> Finder:
    return lambda request, _: [_topic(request.ext.get("topic"), *actions)]


def _one_group(field: str, *actions: str) -> Finder:
    return lambda request, _: [_group(request.ext.get(field), *actions)]


def _route(request: Command, _: str) -> Iterable[Need]:
    topic = request.ext.get("topic")
    return [_topic(topic, *(("Sub", "Get") if is_retry_topic(topic or "") else ("Pub", "Sub", "Get")))]


def _end_transaction(request: Command, _: str) -> Iterable[Need]:
    topic = request.ext.get("topic", "")
    return [Need(TOPIC, topic, ("Pub",))] if topic.strip() else []


def _leave(request: Command, _: str) -> Iterable[Need]:
    group = request.ext.get("consumerGroup", "")
    return [_group(group, "Sub")] if group.strip() else []


def _heart_beat(request: Command, _: str) -> Iterable[Need]:
    for data in HeartBeat.from_command(request).consumers:
        yield _group(data.group_name, "Sub")
        yield from _subscribed(subscription.topic for subscription in data.subscriptions)


def _pops(request: Command, _: str) -> Iterable[Need]:
    topic, group = request.ext.get("topic"), request.ext.get("consumerGroup")
    yield Need(TOPIC, topic and popped_topic(topic, group or ""), SUB)
    yield _group(group, "Sub")


def _batch_ack(request: Command, _: str) -> Iterable[Need]:
    for entry in BatchAckMessage.from_command(request).entries:
        yield Need(TOPIC, entry.topic, SUB)
        yield _group(entry.consumer_group, "Sub")


def _lite_subscriptions(request: Command, _: str) -> Iterable[Need]:
    for change in LiteSubscriptionCtl.from_command(request).changes if request.body else ():
        yield Need(TOPIC, change.topic, SUB)
        yield _group(change.group, "Sub")


def _assignment(request: Command, _: str) -> Iterable[Need]:
    query = QueryAssignment.from_command(request)
    yield Need(TOPIC, popped_topic(query.topic, query.consumer_group), SUB)
    yield _group(query.consumer_group, "Sub")


def _request_mode(request: Command, _: str) -> Iterable[Need]:
    mode = SetRequestMode.from_command(request)
    yield Need(TOPIC, mode.topic, ("Update",))
    yield _group(mode.consumer_group, "Update")


def _locks(request: Command, _: str) -> Iterable[Need]:
    locks = LockQueues.from_command(request)
    yield _group(locks.consumer_group, "Sub")
    yield from _subscribed(queue.topic for queue in locks.queues)


def _subscribed(topics: Iterable[str]) -> Iterable[Need]:
    return (Need(TOPIC, topic, SUB) for topic in topics if not is_retry_topic(topic))


def _created(kind: str, member: str, listed: str = "") -> Finder:
    def find(request: Command, _: str) -> Iterable[Need]:
        members: Any = load_object(request.body, "configurations")
        configurations = members.get(listed) or [] if listed else [members]
        if not isinstance(configurations, list):
            raise BodyError(f"configurations: {listed} is no list")
        for configuration in configurations:
            name = configuration.get(member) if isinstance(configuration, dict) else None
            if not isinstance(name, str):
                raise BodyError(f"configurations: {member} is missing")
            yield Need(kind, name, ("Create",))

    return find


def _named(*actions: str, splitter: str = "", **named: str) -> Finder:
    """Returns a function that finds the rights a request needs: `actions` on each resource named in its header fields.

    A keyword is the kind of resource (`topic`, `group` or `cluster`), and its value the names of header fields,
    separated by blanks. With a `splitter`, a field may contain several resources.
    """
    fields = [(kind.capitalize(), field) for kind, texts in named.items() for field in texts.split()]

    def find(request: Command, _: str) -> Iterable[Need]:
        for kind, field in fields:
            text = request.ext.get(field)
            if text is None:
                continue
            names = [name for name in text.split(splitter) if name] if splitter else [text]
            yield from (_topic(name, *actions) if kind == TOPIC else Need(kind, name, actions) for name in names)

    return find


def _cluster(*actions: str, field: str = "") -> Finder:
    return lambda request, cluster: [Need(CLUSTER, request.ext.get(field, cluster), actions)]


_GET_TOPIC: Final = _named("Get", topic="topic")
_GET_BOTH: Final = _named("Get", topic="topic", group="group")
_UPDATE_BOTH: Final = _named("Update", group="group", topic="topic")
_OF_CLUSTER: Final = _cluster("Update", field="clusterName")
_UPDATE: Final = _cluster("Update")
_GET: Final = _cluster("Get")

_NEEDS: Final[Mapping[int, Finder]] = {
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.RECALL_MESSAGE: _one_topic("Pub"),
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.CONSUMER_SEND_MSG_BACK: _one_group("group", "Sub"),
    RequestCode.PULL_MESSAGE: _group_and_topic("Sub"),
    RequestCode.LITE_PULL_MESSAGE: _group_and_topic("Sub"),
    RequestCode.POP_MESSAGE: _pops,
    RequestCode.ACK_MESSAGE: _pops,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pops,
    RequestCode.NOTIFICATION: _pops,
    RequestCode.POLLING_INFO: _pops,
    RequestCode.POP_LITE_MESSAGE: _pops,
    RequestCode.LITE_SUBSCRIPTION_CTL: _lite_subscriptions,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.QUERY_MESSAGE: _one_topic("Sub", "Get"),
    RequestCode.QUERY_CONSUMER_OFFSET: _group_and_topic("Sub", "Get"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _group_and_topic("Sub", "Update"),
    RequestCode.HEART_BEAT: _heart_beat,
    RequestCode.UNREGISTER_CLIENT: _leave,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _one_group("consumerGroup", "Sub", "Get"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _named("Create", topic="topic"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _created(TOPIC, "topicName", "topicConfigList"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _created(GROUP, "groupName"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _created(GROUP, "groupName", "groupConfigList"),
    RequestCode.DELETE_TOPIC_IN_BROKER: _named("Delete", topic="topic"),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _named("Delete", group="groupName"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _GET_TOPIC,
    RequestCode.GET_MAX_OFFSET: _GET_TOPIC,
    RequestCode.GET_MIN_OFFSET: _GET_TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _GET_TOPIC,
    RequestCode.VIEW_MESSAGE_BY_ID: _GET_TOPIC,
    RequestCode.GET_TOPIC_STATS_INFO: _GET_TOPIC,
    RequestCode.GET_TOPIC_CONFIG: _GET_TOPIC,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _GET_TOPIC,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _named("Get", group="consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _named("Get", group="consumerGroup"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _named("Get", group="group"),
    RequestCode.GET_CONSUME_STATS: _named("Get", group="consumerGroup", topic="topic topicList", splitter=";"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _GET_BOTH,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _UPDATE_BOTH,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _named("Sub", group="consumerGroup", topic="topic"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _GET_BOTH,
    RequestCode.QUERY_CORRECTION_OFFSET: _named("Get", group="filterGroups compareGroup", topic="topic", splitter=","),
    RequestCode.CLONE_GROUP_OFFSET: _named("Update", group="destGroup", topic="topic"),
    RequestCode.VIEW_BROKER_STATS_DATA: _GET,
    RequestCode.GET_BROKER_CONSUME_STATS: _GET,
    RequestCode.QUERY_CONSUME_QUEUE: _named("Get", topic="topic", group="consumerGroup"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _one_topic("Update"),
    RequestCode.GET_ALL_PRODUCER_INFO: _GET,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _named("Get", group="group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _named("Get", group="group", topic="topic"),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _UPDATE_BOTH,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: _GET,
    RequestCode.GET_BROKER_LITE_INFO: _GET,
    RequestCode.GET_PARENT_TOPIC_INFO: _GET_TOPIC,
    RequestCode.GET_LITE_TOPIC_INFO: _named("Get", topic="parentTopic"),
    RequestCode.GET_LITE_CLIENT_INFO: _named("Get", topic="parentTopic", group="group"),
    RequestCode.GET_LITE_GROUP_INFO: _named("Get", group="group"),
    RequestCode.TRIGGER_LITE_DISPATCH: _named("Update", group="group"),
    RequestCode.UPDATE_BROKER_CONFIG: _UPDATE,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _UPDATE,
    RequestCode.CLEAN_UNUSED_TOPIC: _UPDATE,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _UPDATE,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: _UPDATE,
    RequestCode.EXCHANGE_BROKER_HA_INFO: _UPDATE,
    RequestCode.UPDATE_NAMESRV_CONFIG: _UPDATE,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _GET,
    RequestCode.PUT_KV_CONFIG: _UPDATE,
    RequestCode.GET_KV_CONFIG: _GET,
    RequestCode.DELETE_KV_CONFIG: _UPDATE,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _GET,
    RequestCode.REGISTER_BROKER: _OF_CLUSTER,
    RequestCode.UNREGISTER_BROKER: _OF_CLUSTER,
    RequestCode.BROKER_HEARTBEAT: _OF_CLUSTER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _OF_CLUSTER,
    RequestCode.QUERY_DATA_VERSION: _cluster("Get", field="clusterName"),
    RequestCode.GET_BROKER_MEMBER_GROUP: _named("Get", cluster="clusterName"),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _UPDATE,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _UPDATE,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _UPDATE,
    RequestCode.AUTH_CREATE_USER: _UPDATE,
    RequestCode.AUTH_UPDATE_USER: _UPDATE,
    RequestCode.AUTH_DELETE_USER: _UPDATE,
    RequestCode.AUTH_GET_USER: _GET,
    RequestCode.AUTH_LIST_USER: _GET,
    RequestCode.AUTH_CREATE_ACL: _UPDATE,
    RequestCode.AUTH_UPDATE_ACL: _UPDATE,
    RequestCode.AUTH_DELETE_ACL: _UPDATE,
    RequestCode.AUTH_GET_ACL: _GET,
    RequestCode.AUTH_LIST_ACL: _GET,
}
