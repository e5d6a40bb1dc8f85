"""The table of request codes and the functions that answer them; every other code is refused by its name.

A function takes the broker, the request and the peer. It returns the answer, or a coroutine that does. A function that
needs few parts of the broker has only these as parameters, and its line here passes them. `checked` tests the names in
a request's header before the function runs. The functions of sends, pulls and 36 test these themselves, with RocketMQ's
own answers; the functions of requests 34, 41, 42 and 200 test the names in the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import REQUEST_NAMES, RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.servers.access import user_requests
from pyrmq_core.servers.broker.broker import Answer, Broker
from pyrmq_core.servers.broker.processors import called_consumers as called
from pyrmq_core.servers.broker.processors import clients as client_requests
from pyrmq_core.servers.broker.processors import consumer_send_back as retries
from pyrmq_core.servers.broker.processors import end_transaction as transactions
from pyrmq_core.servers.broker.processors import offsets as offset_requests
from pyrmq_core.servers.broker.processors import recall_message as recalls
from pyrmq_core.servers.broker.processors import reply_message as replying
from pyrmq_core.servers.broker.processors import reset_offsets as resets
from pyrmq_core.servers.broker.processors import send_message as sending
from pyrmq_core.servers.broker.processors import statistics as status_requests
from pyrmq_core.servers.broker.processors import topics_and_groups as topic_requests
from pyrmq_core.servers.broker.processors.administration import broker_figures as figures
from pyrmq_core.servers.broker.processors.administration import consumption, lists, look_ups, retention, slave_state
from pyrmq_core.servers.broker.processors.administration import plain_acl as acl_requests
from pyrmq_core.servers.broker.processors.administration.broker_settings import update_config
from pyrmq_core.servers.broker.processors.name_rules import (
    checked,
    client_fault,
    group_fault,
    if_any,
    listed,
    topic_fault,
)
from pyrmq_core.servers.broker.processors.pulls import pull_message as pulling

HANDLERS: Final[Mapping[int, Callable[[Broker, Command, Peer], Answer]]] = {
    RequestCode.SEND_MESSAGE: sending.send,
    RequestCode.SEND_MESSAGE_V2: sending.send,
    RequestCode.SEND_BATCH_MESSAGE: sending.send,
    RequestCode.SEND_REPLY_MESSAGE: replying.reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: replying.reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: retries.send_back,
    RequestCode.END_TRANSACTION: transactions.end_transaction,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: transactions.resume_check,
    RequestCode.RECALL_MESSAGE: checked(recalls.recall, topic=topic_fault),
    RequestCode.PULL_MESSAGE: pulling.pull,
    RequestCode.LITE_PULL_MESSAGE: pulling.pull,
    RequestCode.GET_MAX_OFFSET: checked(
        lambda broker, request, _: offset_requests.max_offset(broker.store.reader, request), topic=topic_fault
    ),
    RequestCode.GET_MIN_OFFSET: checked(
        lambda broker, request, _: offset_requests.min_offset(broker.store.reader, request), topic=topic_fault
    ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: checked(
        lambda broker, request, _: offset_requests.search_offset(broker.store.reader, request), topic=topic_fault
    ),
    RequestCode.GET_EARLIEST_MSG_STORETIME: checked(
        lambda broker, request, _: offset_requests.earliest_store_time(broker.store.reader, request), topic=topic_fault
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: checked(
        lambda broker, request, _: offset_requests.query_consumer_offset(broker.offsets, broker.store.reader, request),
        consumerGroup=group_fault,
        topic=topic_fault,
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: checked(
        lambda broker, request, peer: offset_requests.update_consumer_offset(
            broker.groups, broker.topics, broker.offsets, broker.clients, request, peer
        ),
        consumerGroup=group_fault,
        topic=topic_fault,
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: lambda broker, _request, _: offset_requests.all_consumer_offsets(
        broker.long_work, broker.offsets
    ),
    RequestCode.GET_ALL_DELAY_OFFSET: lambda broker, _request, _: offset_requests.all_delay_offsets(broker.delays),
    RequestCode.GET_TIMER_CHECK_POINT: lambda broker, _request, _: slave_state.timer_checkpoint(
        broker.config, broker.store, broker.timers
    ),
    RequestCode.GET_TIMER_METRICS: lambda broker, _request, _: slave_state.timer_metrics(broker.timers),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: lambda _broker, _request, _: slave_state.message_request_modes(),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: lambda broker, _request, _: slave_state.min_broker_id_changed(
        broker.acting
    ),
    RequestCode.EXCHANGE_BROKER_HA_INFO: slave_state.exchange_ha_info,
    RequestCode.HEART_BEAT: client_requests.heart_beat,
    RequestCode.UNREGISTER_CLIENT: checked(
        client_requests.unregister_client,
        clientID=client_fault,
        producerGroup=if_any(group_fault),
        consumerGroup=if_any(group_fault),
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: checked(
        lambda broker, request, _: client_requests.consumer_list(broker.clients, request), consumerGroup=group_fault
    ),
    RequestCode.CHECK_CLIENT_CONFIG: lambda broker, request, _: client_requests.check_client_config(
        broker.config, request
    ),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: checked(
        lambda broker, request, _: client_requests.consumer_connections(broker.clients, request),
        consumerGroup=group_fault,
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: checked(
        lambda broker, request, _: client_requests.producer_connections(broker.clients, request),
        producerGroup=group_fault,
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: checked(
        lambda broker, request, _: client_requests.groups_of_topic(broker.clients, broker.offsets, request),
        topic=topic_fault,
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: checked(resets.reset_offset, topic=topic_fault, group=group_fault),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: checked(
        lambda broker, request, _: called.consumer_status(broker.calls, broker.clients, request),
        topic=topic_fault,
        group=group_fault,
        clientAddr=client_fault,
    ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: checked(
        lambda broker, request, _: called.running_info(broker.calls, broker.clients, request),
        consumerGroup=group_fault,
        clientId=client_fault,
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: checked(
        called.consume_directly, consumerGroup=group_fault, clientId=client_fault, topic=if_any(topic_fault)
    ),
    RequestCode.LOCK_BATCH_MQ: lambda broker, request, _: client_requests.lock_queues(
        broker.locks, broker.running_ms(), request
    ),
    RequestCode.UNLOCK_BATCH_MQ: lambda broker, request, _: client_requests.unlock_queues(broker.locks, request),
    RequestCode.UPDATE_AND_CREATE_TOPIC: checked(topic_requests.update_topic, topic=topic_fault),
    RequestCode.GET_ALL_TOPIC_CONFIG: lambda broker, request, _: topic_requests.all_topics(
        broker.long_work, broker.topics, request
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: checked(topic_requests.delete_topic, topic=topic_fault),
    RequestCode.GET_TOPIC_CONFIG: checked(
        lambda broker, request, _: topic_requests.get_topic(broker.topics, request), topic=topic_fault
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda broker, request, _: topic_requests.update_group(
        broker.groups, broker.now_ms(), request
    ),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: checked(
        lambda broker, request, _: topic_requests.get_group(broker.groups, broker.now_ms(), request), group=group_fault
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda broker, request, _: topic_requests.all_groups(
        broker.long_work, broker.groups, request
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: checked(
        lambda broker, request, _: topic_requests.delete_group(
            broker.groups, broker.offsets, broker.figures, broker.now_ms(), request
        ),
        groupName=group_fault,
    ),
    RequestCode.DELETE_EXPIRED_COMMITLOG: lambda broker, _request, _: retention.delete_expired_log(broker.retention),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: lambda broker, _request, _: retention.clean_expired_queues(
        broker.store, broker.flusher
    ),
    RequestCode.CLEAN_UNUSED_TOPIC: lambda broker, _request, _: retention.clean_unused_topics(
        broker.store, broker.flusher, broker.topics
    ),
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: lambda broker, request, _: acl_requests.update_account(
        broker.access, request
    ),
    RequestCode.DELETE_ACL_CONFIG: lambda broker, request, _: acl_requests.delete_account(broker.access, request),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: acl_requests.acl_version,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: lambda broker, request, _: acl_requests.update_white_addresses(
        broker.access, request
    ),
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: lambda broker, _request, _: acl_requests.all_accounts(broker.access),
    **dict.fromkeys(
        user_requests.ABOUT,
        lambda broker, request, _: user_requests.answer(broker.access.users, request),
    ),
    RequestCode.QUERY_MESSAGE: checked(
        lambda broker, request, _: look_ups.query_message(broker.config, broker.index, request), topic=topic_fault
    ),
    RequestCode.VIEW_MESSAGE_BY_ID: lambda broker, request, _: look_ups.view_message(broker.store.reader, request),
    RequestCode.GET_BROKER_RUNTIME_INFO: figures.runtime_info,
    RequestCode.UPDATE_BROKER_CONFIG: update_config,
    RequestCode.VIEW_BROKER_STATS_DATA: lambda broker, request, _: figures.stats_data(broker.figures, request),
    RequestCode.GET_BROKER_HA_STATUS: figures.ha_status,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lists.update_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lists.update_groups,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: lambda broker, _request, _: lists.system_topics(broker.topics),
    RequestCode.GET_ALL_PRODUCER_INFO: lambda broker, _request, _: lists.all_producers(
        broker.long_work, broker.clients, broker.now_ms() - broker.running_ms()
    ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: checked(
        lambda broker, request, _: consumption.topics_of_group(broker.offsets, broker.address, request),
        group=group_fault,
    ),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: checked(
        lambda broker, request, _: consumption.subscription_of_group(broker.clients, request),
        group=group_fault,
        topic=topic_fault,
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: checked(consumption.time_spans, group=group_fault, topic=topic_fault),
    RequestCode.QUERY_CORRECTION_OFFSET: checked(
        lambda broker, request, _: consumption.correction_offsets(
            broker.long_work, broker.offsets, broker.store.reader, request
        ),
        compareGroup=group_fault,
        topic=topic_fault,
    ),
    RequestCode.CLONE_GROUP_OFFSET: checked(
        consumption.clone_offsets, srcGroup=group_fault, destGroup=group_fault, topic=if_any(topic_fault)
    ),
    RequestCode.GET_BROKER_CONSUME_STATS: consumption.broker_consume_stats,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: checked(
        lambda broker, request, _: consumption.group_forbidden(broker.groups, broker.now_ms(), request),
        group=group_fault,
        topic=topic_fault,
    ),
    RequestCode.QUERY_CONSUME_QUEUE: checked(
        lambda broker, request, _: look_ups.queue_entries(
            broker.long_work, broker.store, broker.clients, broker.filters, request
        ),
        topic=topic_fault,
        consumerGroup=if_any(group_fault),
    ),
    RequestCode.GET_BROKER_CONFIG: lambda broker, _request, _: status_requests.broker_config(
        broker.config, broker.settings_version
    ),
    RequestCode.GET_TOPIC_STATS_INFO: checked(status_requests.topic_stats, topic=topic_fault),
    RequestCode.GET_CONSUME_STATS: checked(
        status_requests.consume_stats,
        consumerGroup=group_fault,
        topic=if_any(topic_fault),
        topicList=listed(topic_fault),
    ),
}

# The requests that are refused, each with the name of the part that is not built.
NOT_BUILT: Final[Mapping[int, str]] = {
    **dict.fromkeys(
        (
            RequestCode.QUERY_ASSIGNMENT,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            RequestCode.POP_MESSAGE,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
            RequestCode.POP_ROLLBACK,
        ),
        "pop consumption",
    ),
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


def handle(broker: Broker, request: Command, peer: Peer) -> Answer:
    """Returns the answer to a request; the connection turns an exception into an error answer."""
    function = HANDLERS.get(request.code)
    return unsupported(request) if function is None else function(broker, request, peer)


def unsupported(request: Command) -> Command:
    """Returns RocketMQ's refusal, with the code's name if it has one and the part that is not built."""
    name = REQUEST_NAMES.get(request.code)
    text = f" request type {request.code} not supported"
    if name:
        text += f": {name}"
    if what := NOT_BUILT.get(request.code):
        text += f"; this broker has no {what}"
    return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
