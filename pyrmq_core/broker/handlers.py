"""Which request goes to which function; a code that is not in the table is refused by its name.

A function takes the broker, the request and the peer. It answers at once, or is an async function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyrmq_core.broker import (
    client_requests,
    lock_requests,
    offset_requests,
    pulling,
    retries,
    sending,
    status_requests,
    topic_requests,
)
from pyrmq_core.broker.state import Answer, Broker
from pyrmq_core.network import Peer
from pyrmq_core.protocol.codes import REQUEST_NAMES, RequestCode, ResponseCode
from pyrmq_core.protocol.command import Command, refusal

HANDLERS: Final[Mapping[int, Callable[[Broker, Command, Peer], Answer]]] = {
    RequestCode.SEND_MESSAGE: sending.send,
    RequestCode.SEND_MESSAGE_V2: sending.send,
    RequestCode.SEND_BATCH_MESSAGE: sending.send,
    RequestCode.CONSUMER_SEND_MSG_BACK: retries.send_back,
    RequestCode.PULL_MESSAGE: pulling.pull,
    RequestCode.LITE_PULL_MESSAGE: pulling.pull,
    RequestCode.GET_MAX_OFFSET: offset_requests.max_offset,
    RequestCode.GET_MIN_OFFSET: offset_requests.min_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offset_requests.search_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offset_requests.earliest_store_time,
    RequestCode.QUERY_CONSUMER_OFFSET: offset_requests.query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: offset_requests.update_consumer_offset,
    RequestCode.GET_ALL_CONSUMER_OFFSET: offset_requests.all_consumer_offsets,
    RequestCode.HEART_BEAT: client_requests.heart_beat,
    RequestCode.UNREGISTER_CLIENT: client_requests.unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: client_requests.consumer_list,
    RequestCode.CHECK_CLIENT_CONFIG: client_requests.check_client_config,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: client_requests.consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: client_requests.producer_connections,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: client_requests.groups_of_topic,
    RequestCode.LOCK_BATCH_MQ: lock_requests.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: lock_requests.unlock_queues,
    RequestCode.UPDATE_AND_CREATE_TOPIC: topic_requests.update_topic,
    RequestCode.GET_ALL_TOPIC_CONFIG: topic_requests.all_topics,
    RequestCode.DELETE_TOPIC_IN_BROKER: topic_requests.delete_topic,
    RequestCode.GET_TOPIC_CONFIG: topic_requests.get_topic,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: topic_requests.update_group,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: topic_requests.get_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: topic_requests.all_groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: topic_requests.delete_group,
    RequestCode.VIEW_MESSAGE_BY_ID: topic_requests.view_message,
    RequestCode.GET_BROKER_RUNTIME_INFO: status_requests.runtime_info,
    RequestCode.GET_BROKER_CONFIG: status_requests.broker_config,
    RequestCode.GET_TOPIC_STATS_INFO: status_requests.topic_stats,
    RequestCode.GET_CONSUME_STATS: status_requests.consume_stats,
}


def handle(broker: Broker, request: Command, peer: Peer) -> Answer:
    """The answer to a request; what a function raises is the network's to answer."""
    function = HANDLERS.get(request.code)
    return unsupported(request) if function is None else function(broker, request, peer)


def unsupported(request: Command) -> Command:
    """RocketMQ's text, and the name where the code has one."""
    name = REQUEST_NAMES.get(request.code)
    text = f" request type {request.code} not supported"
    return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"{text}: {name}" if name else text)
