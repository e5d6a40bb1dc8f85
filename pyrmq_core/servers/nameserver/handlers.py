"""The request handlers of a NameServer, one short function per request code, and the table of all of them.

Routes of other environments (`clusterTest`) and the controller's requests are not supported. Like any unknown code they
are answered with REQUEST_CODE_NOT_SUPPORTED, as in 5.x. Sources: namesrv/processor/DefaultRequestProcessor.java,
ClientRequestProcessor.java, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import REQUEST_NAMES, RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.fields import parse_bool
from pyrmq_core.protocol.framing.frame import MAX_FRAME_BYTES
from pyrmq_core.protocol.requests.nameserver.cluster_info import GetBrokerMemberGroup
from pyrmq_core.protocol.requests.nameserver.kv_config import (
    DeleteKvConfig,
    GetKvConfig,
    GetKvList,
    KvConfig,
    PutKvConfig,
)
from pyrmq_core.protocol.requests.nameserver.namesrv_config import NamesrvConfigText, UpdateNamesrvConfig
from pyrmq_core.protocol.requests.nameserver.topic_in_namesrv import DeleteTopicInNamesrv, RegisterTopicInNamesrv
from pyrmq_core.protocol.requests.nameserver.topic_lists import GetTopicsByCluster, TopicList
from pyrmq_core.protocol.requests.nameserver.write_perm import (
    AddedWritePerm,
    AddWritePerm,
    WipedWritePerm,
    WipeWritePerm,
)
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.access import user_requests
from pyrmq_core.servers.nameserver.service import NameServer, now_ms
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo, accepted, registration
from pyrmq_core.servers.nameserver.tables import admin_changes as outside
from pyrmq_core.servers.nameserver.tables import queries as lookups
from pyrmq_core.servers.protocol.broker_heartbeat import BrokerHeartbeat
from pyrmq_core.servers.protocol.register_broker import (
    KnownDataVersion,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
)

# V4_9_4 of common/MQVersion.java: clients of this version or later read strict JSON.
STANDARD_JSON_VERSION: Final = 401
# The end of RocketMQ's error texts (common/help/FAQUrl.java), for which users search.
HELP: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
KEY_MISSING: Final = "namespace or key is null"
DISABLED: Final = "disable"
# The default limit of a request's body: a data version has 100 bytes, and settings have 5,000 bytes.
SMALL_BODY_BYTES: Final = 64 * 1024
# The most bytes of a body about one topic or user: enough for a topic's queues at 5,000 brokers.
TOPIC_BODY_BYTES: Final = 1024 * 1024

Answer = Command | Awaitable[Command]
Handle = Callable[[NameServer, Command, Peer], Answer]


class RequestEntry(NamedTuple):
    """The handler of a request code. A body over `max_body_bytes` is refused, as decoding would block the loop."""

    handle: Handle
    max_body_bytes: int = SMALL_BODY_BYTES


def handle(server: NameServer, request: Command, peer: Peer) -> Answer:
    """Returns the answer to any request. If it raises an exception, the connection sends an error answer."""
    served = HANDLERS.get(request.code)
    if served is None:
        return refuse_unknown(request)
    if len(request.body) > served.max_body_bytes:
        sent, most = len(request.body), served.max_body_bytes
        return refusal(ResponseCode.SYSTEM_ERROR, f"the body has {sent} bytes; {most} at most for this request")
    answer = served.handle(server, request, peer)
    if isinstance(answer, Command) and len(answer.body) > MAX_FRAME_BYTES:
        remark = f"the answer is longer than a frame of {MAX_FRAME_BYTES} bytes; ask for less"
        return refusal(ResponseCode.SYSTEM_ERROR, remark)
    return answer


def refuse_unknown(request: Command) -> Command:
    name = REQUEST_NAMES.get(request.code)
    about = "" if name is None else f": {name} is no question for a NameServer"
    return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported{about}")


def get_route_info(server: NameServer, request: Command, peer: Peer) -> Answer:
    """Returns a topic's route. The request is the most frequent one, so it is decoded without a dataclass."""
    if not server.is_ready:
        return refusal(ResponseCode.SYSTEM_ERROR, "name server not ready")
    topic = request.ext.get("topic")
    route = None if topic is None else lookups.route(server.tables, topic)
    if topic is None or route is None:
        named = "null" if topic is None else topic
        remark = f"No topic route info in name server for the topic: {named}{HELP}"
        return refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    server.found_a_route = True
    order = server.order_topic_conf(topic)
    standard = request.version >= STANDARD_JSON_VERSION or parse_bool(request.ext.get("acceptStandardJsonOnly", ""))
    zone = request.ext.get("__ZONE_NAME", "").strip()
    if zone and parse_bool(request.ext.get("__ZONE_MODE", "")):
        return success(body=_route_body(lookups.route_in_zone(route, zone), order, bare_ids=not standard))
    cached = server.answers.cached(topic, route, order, bare_ids=not standard)
    if cached is not None:
        return cached
    body = _route_body(route, order, bare_ids=not standard)
    return server.answers.keep(topic, route, order, body, bare_ids=not standard)


def _route_body(route: TopicRouteData, order: str | None, *, bare_ids: bool) -> bytes:
    return replace(route, order_topic_conf=order).to_json(bare_ids=bare_ids)


def register_broker(server: NameServer, request: Command, peer: Peer) -> Answer:
    register = RegisterBroker.from_command(request)
    accepted.check_registration(register.header)
    try:
        register.check_crc()
    except BodyError as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    return server.registrations.take(register, peer)


def unregister_broker(server: NameServer, request: Command, _: Peer) -> Command:
    broker = UnregisterBroker.from_command(request)
    accepted.check_name("brokerName", broker.broker_name)
    server.unregister(broker, _live_key(broker.cluster_name, broker.broker_addr))
    return success()


def query_data_version(server: NameServer, request: Command, _: Peer) -> Command:
    header = QueryDataVersion.from_command(request)
    key = _live_key(header.cluster_name, header.broker_addr)
    live = server.tables.broker_live_table.get(key)
    registration.heartbeat(server.tables, key, now_ms())
    version = None if live is None else live.data_version
    return KnownDataVersion(version != header.data_version, version).to_command()


def broker_heartbeat(server: NameServer, request: Command, _: Peer) -> Command:
    header = BrokerHeartbeat.from_command(request)
    registration.heartbeat(server.tables, _live_key(header.cluster_name, header.broker_addr), now_ms())
    return success()


def _live_key(cluster_name: str, broker_addr: str) -> BrokerAddrInfo:
    accepted.check_name("clusterName", cluster_name)
    accepted.check_address("brokerAddr", broker_addr)
    return BrokerAddrInfo(cluster_name, broker_addr)


def get_cluster_info(server: NameServer, _request: Command, _: Peer) -> Command:
    return lookups.cluster_info(server.tables).to_command()


def get_broker_member_group(server: NameServer, request: Command, _: Peer) -> Command:
    header = GetBrokerMemberGroup.from_command(request)
    return lookups.broker_member_group(server.tables, header.cluster_name, header.broker_name).to_command()


def get_all_topics(server: NameServer, _request: Command, _: Peer) -> Command:
    return _topic_list(server, lookups.all_topics(server.tables), enabled=server.config.enable_all_topic_list)


def get_system_topics(server: NameServer, _request: Command, _: Peer) -> Command:
    return lookups.system_topics(server.tables).to_command()


def get_topics_by_cluster(server: NameServer, request: Command, _: Peer) -> Command:
    cluster = GetTopicsByCluster.from_command(request).cluster
    return _topic_list(server, lookups.topics_of_cluster(server.tables, cluster))


def get_unit_topics(server: NameServer, _request: Command, _: Peer) -> Command:
    return _topic_list(server, lookups.unit_topics(server.tables))


def get_unit_sub_topics(server: NameServer, _request: Command, _: Peer) -> Command:
    return _topic_list(server, lookups.unit_sub_topics(server.tables))


def get_unit_sub_ununit_topics(server: NameServer, _request: Command, _: Peer) -> Command:
    return _topic_list(server, lookups.unit_sub_ununit_topics(server.tables))


def _topic_list(server: NameServer, topics: list[str], *, enabled: bool | None = None) -> Command:
    if not (server.config.enable_topic_list if enabled is None else enabled):
        return refusal(ResponseCode.SYSTEM_ERROR, DISABLED)
    return TopicList(tuple(topics)).to_command()


def wipe_write_perm(server: NameServer, request: Command, _: Peer) -> Command:
    header = WipeWritePerm.from_command(request)
    accepted.check_name("brokerName", header.broker_name)
    switched = outside.wipe_write_perm(server.tables, header.broker_name)
    server.tell([switched])
    return WipedWritePerm(switched.topics).to_command()


def add_write_perm(server: NameServer, request: Command, _: Peer) -> Command:
    header = AddWritePerm.from_command(request)
    accepted.check_name("brokerName", header.broker_name)
    switched = outside.add_write_perm(server.tables, header.broker_name)
    server.tell([switched])
    return AddedWritePerm(switched.topics).to_command()


def delete_topic(server: NameServer, request: Command, _: Peer) -> Command:
    header = DeleteTopicInNamesrv.from_command(request)
    accepted.check_topic("topic", header.topic)
    server.tell(outside.delete_topic(server.tables, header.topic, header.cluster_name))
    return success()


def register_topic(server: NameServer, request: Command, _: Peer) -> Command:
    header = RegisterTopicInNamesrv.from_command(request)
    accepted.check_topic("topic", header.topic)
    change = outside.set_topic(server.tables, header.topic, header.queue_datas)
    server.tell([] if change is None else [change])
    return success()


def put_kv_config(server: NameServer, request: Command, _: Peer) -> Answer:
    header = PutKvConfig.from_command(request)
    if header.namespace is None or header.key is None:
        return refusal(ResponseCode.SYSTEM_ERROR, KEY_MISSING)
    accepted.check_key("namespace", header.namespace)
    accepted.check_key("key", header.key)
    accepted.check_value("value", header.value or "")
    server.kv.put(header.namespace, header.key, header.value)
    return _saved(server)


def delete_kv_config(server: NameServer, request: Command, _: Peer) -> Answer:
    header = DeleteKvConfig.from_command(request)
    if header.namespace is None or header.key is None:
        return refusal(ResponseCode.SYSTEM_ERROR, KEY_MISSING)
    server.kv.delete(header.namespace, header.key)
    return _saved(server)


async def _saved(server: NameServer) -> Command:
    """Saves the changed KV configuration, and returns the answer to the client.

    Unlike in Java, the answer is an error if the file cannot be written.
    """
    try:
        await server.kv.save()
    except StoreError as error:
        return refusal(ResponseCode.SYSTEM_ERROR, f"changed in memory only: {error}")
    return success()


def get_kv_config(server: NameServer, request: Command, _: Peer) -> Command:
    header = GetKvConfig.from_command(request)
    value = server.kv.get(header.namespace, header.key)
    if value is None:
        where = f"Namespace: {_java_text(header.namespace)} Key: {_java_text(header.key)}"
        return refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, {where}")
    return KvConfig(value).to_command()


def get_kv_list(server: NameServer, request: Command, _: Peer) -> Command:
    header = GetKvList.from_command(request)
    body = server.kv.table_body(header.namespace or "")
    if body is None:
        return refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {_java_text(header.namespace)}")
    return success(body=body)


def _java_text(text: str | None) -> str:
    return "null" if text is None else text


def get_namesrv_config(server: NameServer, _request: Command, _: Peer) -> Command:
    return NamesrvConfigText(server.config.to_settings()).to_command()


async def update_namesrv_config(server: NameServer, request: Command, _: Peer) -> Command:
    header = UpdateNamesrvConfig.from_command(request)
    if server.config.black_list.intersection(header.settings):
        return refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    try:
        await server.update_config(header.settings)
    except (InvalidArgument, StoreError) as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    return success()


async def administer_users(server: NameServer, request: Command, _: Peer) -> Command:
    return await user_requests.answer(server.access.users, request)


HANDLERS: Final[Mapping[int, RequestEntry]] = {
    RequestCode.PUT_KV_CONFIG: RequestEntry(put_kv_config),
    RequestCode.GET_KV_CONFIG: RequestEntry(get_kv_config),
    RequestCode.DELETE_KV_CONFIG: RequestEntry(delete_kv_config),
    RequestCode.REGISTER_BROKER: RequestEntry(register_broker, MAX_FRAME_BYTES),
    RequestCode.UNREGISTER_BROKER: RequestEntry(unregister_broker),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: RequestEntry(get_route_info),
    RequestCode.GET_BROKER_CLUSTER_INFO: RequestEntry(get_cluster_info),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: RequestEntry(wipe_write_perm),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: RequestEntry(get_all_topics),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: RequestEntry(delete_topic),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: RequestEntry(register_topic, TOPIC_BODY_BYTES),
    RequestCode.GET_KVLIST_BY_NAMESPACE: RequestEntry(get_kv_list),
    RequestCode.GET_TOPICS_BY_CLUSTER: RequestEntry(get_topics_by_cluster),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: RequestEntry(get_system_topics),
    RequestCode.GET_UNIT_TOPIC_LIST: RequestEntry(get_unit_topics),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: RequestEntry(get_unit_sub_topics),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: RequestEntry(get_unit_sub_ununit_topics),
    RequestCode.UPDATE_NAMESRV_CONFIG: RequestEntry(update_namesrv_config),
    RequestCode.GET_NAMESRV_CONFIG: RequestEntry(get_namesrv_config),
    RequestCode.QUERY_DATA_VERSION: RequestEntry(query_data_version),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: RequestEntry(add_write_perm),
    RequestCode.GET_BROKER_MEMBER_GROUP: RequestEntry(get_broker_member_group),
    RequestCode.BROKER_HEARTBEAT: RequestEntry(broker_heartbeat),
    **dict.fromkeys(user_requests.ABOUT, RequestEntry(administer_users, TOPIC_BODY_BYTES)),
}
