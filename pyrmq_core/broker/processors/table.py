"""The table of request codes and the functions that answer them; every other code is refused by its name.

A function takes the broker, the request and the peer. It returns the answer, or a coroutine that does. `checked` tests
the names in a request's header before the function runs. The functions of sends, pulls and 36 test these themselves,
with RocketMQ's own answers; those of 34, 41, 42 and 200 test the names in the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyrmq_core.broker.broker import Answer, Broker
from pyrmq_core.broker.processors import clients as client_requests
from pyrmq_core.broker.processors import consumer_send_back as retries
from pyrmq_core.broker.processors import offsets as offset_requests
from pyrmq_core.broker.processors import pull_message as pulling
from pyrmq_core.broker.processors import queue_locks as lock_requests
from pyrmq_core.broker.processors import send_message as sending
from pyrmq_core.broker.processors import statistics as status_requests
from pyrmq_core.broker.processors import topics_and_groups as topic_requests
from pyrmq_core.broker.processors.name_rules import checked, client_fault, group_fault, if_any, listed, topic_fault
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import REQUEST_NAMES, RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal

HANDLERS: Final[Mapping[int, Callable[[Broker, Command, Peer], Answer]]] = {
    RequestCode.SEND_MESSAGE: sending.send,
    RequestCode.SEND_MESSAGE_V2: sending.send,
    RequestCode.SEND_BATCH_MESSAGE: sending.send,
    RequestCode.CONSUMER_SEND_MSG_BACK: retries.send_back,
    RequestCode.PULL_MESSAGE: pulling.pull,
    RequestCode.LITE_PULL_MESSAGE: pulling.pull,
    RequestCode.GET_MAX_OFFSET: checked(offset_requests.max_offset, topic=topic_fault),
    RequestCode.GET_MIN_OFFSET: checked(offset_requests.min_offset, topic=topic_fault),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: checked(offset_requests.search_offset, topic=topic_fault),
    RequestCode.GET_EARLIEST_MSG_STORETIME: checked(offset_requests.earliest_store_time, topic=topic_fault),
    RequestCode.QUERY_CONSUMER_OFFSET: checked(
        offset_requests.query_consumer_offset, consumerGroup=group_fault, topic=topic_fault
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: checked(
        offset_requests.update_consumer_offset, consumerGroup=group_fault, topic=topic_fault
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: offset_requests.all_consumer_offsets,
    RequestCode.HEART_BEAT: client_requests.heart_beat,
    RequestCode.UNREGISTER_CLIENT: checked(
        client_requests.unregister_client,
        clientID=client_fault,
        producerGroup=if_any(group_fault),
        consumerGroup=if_any(group_fault),
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: checked(client_requests.consumer_list, consumerGroup=group_fault),
    RequestCode.CHECK_CLIENT_CONFIG: client_requests.check_client_config,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: checked(client_requests.consumer_connections, consumerGroup=group_fault),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: checked(client_requests.producer_connections, producerGroup=group_fault),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: checked(client_requests.groups_of_topic, topic=topic_fault),
    RequestCode.LOCK_BATCH_MQ: lock_requests.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: lock_requests.unlock_queues,
    RequestCode.UPDATE_AND_CREATE_TOPIC: checked(topic_requests.update_topic, topic=topic_fault),
    RequestCode.GET_ALL_TOPIC_CONFIG: topic_requests.all_topics,
    RequestCode.DELETE_TOPIC_IN_BROKER: checked(topic_requests.delete_topic, topic=topic_fault),
    RequestCode.GET_TOPIC_CONFIG: checked(topic_requests.get_topic, topic=topic_fault),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: topic_requests.update_group,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: checked(topic_requests.get_group, group=group_fault),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: topic_requests.all_groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: checked(topic_requests.delete_group, groupName=group_fault),
    RequestCode.VIEW_MESSAGE_BY_ID: topic_requests.view_message,
    RequestCode.GET_BROKER_RUNTIME_INFO: status_requests.runtime_info,
    RequestCode.GET_BROKER_CONFIG: status_requests.broker_config,
    RequestCode.GET_TOPIC_STATS_INFO: checked(status_requests.topic_stats, topic=topic_fault),
    RequestCode.GET_CONSUME_STATS: checked(
        status_requests.consume_stats,
        consumerGroup=group_fault,
        topic=if_any(topic_fault),
        topicList=listed(topic_fault),
    ),
}

# The part that is not built, for each request that needs one.
NOT_BUILT: Final[Mapping[int, str]] = {
    RequestCode.QUERY_MESSAGE: "index of keys",
    RequestCode.UPDATE_BROKER_CONFIG: "settings that change while it runs",
    RequestCode.END_TRANSACTION: "transactions",
    RequestCode.SEND_REPLY_MESSAGE: "request-reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: "request-reply",
    RequestCode.RECALL_MESSAGE: "timer messages",
    RequestCode.QUERY_ASSIGNMENT: "pop consumption",
}


def handle(broker: Broker, request: Command, peer: Peer) -> Answer:
    """Returns the answer to a request; the network answers for a function that raises."""
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
