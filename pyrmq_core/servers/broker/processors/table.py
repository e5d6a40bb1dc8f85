"""The table of request codes and their handlers. The refusal of any other code has the name of that code.

The handlers of a family of requests are methods of a frozen dataclass, whose method `handlers` returns its rows of the
table. `checked` tests the names in a request's header before the handler runs. The handlers of sends, of pulls and of
CONSUMER_SEND_MSG_BACK (36) test names themselves, with RocketMQ's own answers. Handlers of requests with names in the
body, such as 34, 41, 42 and 200, test these themselves, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import REQUEST_NAMES, RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.processors.administration.broker_figures import FigureRequests
from pyrmq_core.servers.broker.processors.administration.broker_settings import SettingRequests
from pyrmq_core.servers.broker.processors.administration.consumption import ConsumptionRequests
from pyrmq_core.servers.broker.processors.administration.lists import ListRequests
from pyrmq_core.servers.broker.processors.administration.lite_topics import LiteTopicRequests
from pyrmq_core.servers.broker.processors.administration.look_ups import LookUpRequests
from pyrmq_core.servers.broker.processors.administration.plain_acl import AccessRequests
from pyrmq_core.servers.broker.processors.administration.retention import RetentionRequests
from pyrmq_core.servers.broker.processors.administration.slave_state import SlaveRequests
from pyrmq_core.servers.broker.processors.called_consumers import ConsumerCallRequests
from pyrmq_core.servers.broker.processors.clients import HeartbeatRequests, MemberRequests
from pyrmq_core.servers.broker.processors.consumer_send_back import SendBackRequests
from pyrmq_core.servers.broker.processors.delays import DelayedQueues
from pyrmq_core.servers.broker.processors.end_transaction import TransactionRequests
from pyrmq_core.servers.broker.processors.handlers import Answer, Handler, Handlers
from pyrmq_core.servers.broker.processors.offsets import OffsetRequests
from pyrmq_core.servers.broker.processors.pops.assignments import AssignmentRequests
from pyrmq_core.servers.broker.processors.pops.lite import LiteGroupRequests
from pyrmq_core.servers.broker.processors.pops.notification import NotificationRequests
from pyrmq_core.servers.broker.processors.pops.pop_message import PopRequests
from pyrmq_core.servers.broker.processors.pops.settle import SettleRequests
from pyrmq_core.servers.broker.processors.pulls.pull_filters import PullFilters
from pyrmq_core.servers.broker.processors.pulls.pull_message import PullRequests
from pyrmq_core.servers.broker.processors.put_message import MessageWriter
from pyrmq_core.servers.broker.processors.recall_message import RecallRequests
from pyrmq_core.servers.broker.processors.reply_message import ReplyRequests
from pyrmq_core.servers.broker.processors.reset_offsets import ResetRequests
from pyrmq_core.servers.broker.processors.send_message import SendRequests
from pyrmq_core.servers.broker.processors.slave_rules import SlaveRules
from pyrmq_core.servers.broker.processors.statistics import QueueRows, StatisticsRequests
from pyrmq_core.servers.broker.processors.topics_and_groups import GroupRequests, TopicRequests


class Family(Protocol):
    def handlers(self) -> Handlers: ...


FAMILIES: Final[tuple[type[Any], ...]] = (
    SendRequests,
    ReplyRequests,
    SendBackRequests,
    TransactionRequests,
    RecallRequests,
    PullRequests,
    PopRequests,
    LiteGroupRequests,
    LiteTopicRequests,
    SettleRequests,
    NotificationRequests,
    AssignmentRequests,
    OffsetRequests,
    ResetRequests,
    HeartbeatRequests,
    MemberRequests,
    ConsumerCallRequests,
    TopicRequests,
    GroupRequests,
    ListRequests,
    ConsumptionRequests,
    StatisticsRequests,
    FigureRequests,
    LookUpRequests,
    SettingRequests,
    AccessRequests,
    RetentionRequests,
    SlaveRequests,
)

# The known requests that are refused, each with the feature that this broker lacks.
NOT_BUILT: Final[Mapping[int, str]] = {
    **dict.fromkeys((RequestCode.PEEK_MESSAGE, RequestCode.POP_ROLLBACK), "peeked or returned pops"),
    **dict.fromkeys(
        (RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON),
        "queues or tables in RocksDB",
    ),
    RequestCode.SWITCH_TIMER_ENGINE: "timers in RocksDB",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "static topics",
    **dict.fromkeys((RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER), "container of brokers"),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: "limit of the log up to which slaves check it",
    **dict.fromkeys((RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED), "controller"),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
            RequestCode.SET_COMMITLOG_READ_MODE,
        ),
        "control of cold data",
    ),
}


def handler_of(broker: Broker) -> Handler:
    handlers = {code: handler for family in families_of(broker) for code, handler in family.handlers().items()}
    respond = partial(handle, handlers)
    if not broker.settings.config.is_slave:
        return respond
    cluster = broker.cluster
    return SlaveRules(broker.settings, broker.identity, cluster.registration, cluster.acting, respond).answer


def handle(handlers: Handlers, request: Command, peer: Peer) -> Answer:
    handler = handlers.get(request.code)
    return unsupported(request) if handler is None else handler(request, peer)


def families_of(broker: Broker) -> Iterator[Family]:
    return chain(_of_messages(broker), _of_consumption(broker), _of_administration(broker))


def _of_messages(broker: Broker) -> Iterator[Family]:
    settings, identity, store, flusher = broker.settings, broker.identity, broker.store, broker.services.flusher
    tables, clients, cluster, deliveries = broker.tables, broker.clients, broker.cluster, broker.deliveries
    topics, announcer = tables.topics, cluster.announcer
    writer = MessageWriter(settings, store, broker.counts, flusher, cluster.ha.replicas)
    delays = DelayedQueues(deliveries.delays, deliveries.timers)
    yield (
        retries := SendBackRequests(
            settings,
            identity,
            tables.groups,
            topics,
            clients.locks,
            store.reader,
            deliveries.delays,
            announcer,
            writer,
            broker.counts,
        )
    )
    yield (
        sends := SendRequests(settings, identity, topics, announcer, writer, retries, delays, deliveries.transactions)
    )
    yield ReplyRequests(settings, identity, sends, clients.table, clients.replies)
    yield TransactionRequests(deliveries.transactions, writer, flusher, store)
    yield RecallRequests(settings, identity, topics, delays, writer)


def _of_consumption(broker: Broker) -> Iterator[Family]:
    settings, tables, clients, store = broker.settings, broker.tables, broker.clients, broker.store
    topics, groups, offsets, long_work = tables.topics, tables.groups, tables.offsets, broker.services.long_work
    reader, figures, table = store.reader, broker.counts.figures, clients.table
    rows = QueueRows(settings.config.broker_name, offsets, reader)
    filters = PullFilters(settings, groups, table, tables.filters)
    yield PullRequests(settings, filters, topics, groups, offsets, table, clients.held, store, figures)
    writer = MessageWriter(settings, store, broker.counts, broker.services.flusher, broker.cluster.ha.replicas)
    yield (pops := PopRequests(settings, topics, groups, offsets, broker.deliveries.reviver, writer))
    yield (lite := LiteGroupRequests(pops, broker.cluster.registration))
    yield LiteTopicRequests(settings, topics, groups, offsets, store, broker.cluster.registration, lite, long_work)
    yield SettleRequests(settings, topics, broker.deliveries.reviver, writer)
    yield NotificationRequests(settings, topics, groups, offsets, broker.deliveries.reviver)
    yield AssignmentRequests(settings, topics, groups, table, tables.modes, broker.cluster.registration)
    yield OffsetRequests(reader, offsets, groups, topics, table, settings.config.keeps_lite_queues)
    yield ResetRequests(settings, topics, groups, offsets, reader, table, clients.held, long_work)
    yield HeartbeatRequests(settings, table, groups, tables.filters, topics, broker.cluster.announcer, clients.changes)
    yield MemberRequests(settings, table, offsets, clients.locks)
    yield ConsumerCallRequests(settings, clients.calls, table, reader, topics, groups)
    yield ConsumptionRequests(broker.identity.address, topics, groups, offsets, table, reader, figures, rows, long_work)
    yield StatisticsRequests(settings, topics, offsets, table, figures, rows, long_work)


def _of_administration(broker: Broker) -> Iterator[Family]:
    settings, identity, services, tables = broker.settings, broker.identity, broker.services, broker.tables
    store, flusher, long_work, figures = broker.store, services.flusher, services.long_work, broker.counts.figures
    topics, groups, offsets, table = tables.topics, tables.groups, tables.offsets, broker.clients.table
    cluster, deliveries, retention = broker.cluster, broker.deliveries, services.retention
    registration, replicas = cluster.registration, cluster.ha.replicas
    yield TopicRequests(topics, cluster.announcer, store, flusher, offsets, table, figures, long_work, services.nursery)
    yield GroupRequests(groups, offsets, figures, long_work)
    yield ListRequests(topics, cluster.announcer, groups, table, long_work)
    yield FigureRequests(
        settings,
        identity,
        store,
        figures,
        deliveries.delays,
        deliveries.timers,
        broker.clients.held,
        registration,
        replicas,
        cluster.ha_client,
    )
    yield LookUpRequests(settings, store, services.index, table, tables.filters, long_work)
    yield SettingRequests(
        settings, broker.access, topics, groups, deliveries.transactions, replicas, retention, registration
    )
    yield AccessRequests(broker.access, settings, identity)
    yield RetentionRequests(retention, store, flusher, topics, offsets, table)
    yield SlaveRequests(
        settings,
        identity,
        store,
        offsets,
        tables.modes,
        deliveries.delays,
        deliveries.timers,
        registration,
        cluster.acting,
        long_work,
    )


def unsupported(request: Command) -> Command:
    """Returns RocketMQ's refusal of an unknown code, with the code's name and the feature that the broker lacks."""
    name = REQUEST_NAMES.get(request.code)
    text = f" request type {request.code} not supported"
    if name:
        text += f": {name}"
    if what := NOT_BUILT.get(request.code):
        text += f"; this broker has no {what}"
    return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
