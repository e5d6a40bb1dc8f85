"""What clients say of themselves: heartbeats (34), leaving (35), who else is in the group (38), expressions (46).

Supported: version 1 of the heartbeat, whole each time. Source: broker/processor/ClientManageProcessor.java,
ConsumerManageProcessor.java (5.4.0).
"""

from __future__ import annotations

from typing import Any, Final

from pyrmq_core.broker.pulling import codes_of_expression
from pyrmq_core.broker.state import Answer, Broker
from pyrmq_core.broker.storing import Refused, make_topic
from pyrmq_core.broker.topics import READ_WRITE
from pyrmq_core.errors import BodyError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.command import Command, refusal, success
from pyrmq_core.protocol.java_json import dumps, load_object
from pyrmq_core.protocol.names import RETRY_PREFIX
from pyrmq_core.protocol.requests.heartbeat import ConsumerData, HeartBeat, HeartBeatAnswer, UnregisterClient

MAX_RETRY_TOPIC_CHARS: Final = 255


def heart_beat(broker: Broker, request: Command, peer: Peer) -> Answer:
    """Registers the connection for its groups; a consumer group gets its retry topic."""
    beat = HeartBeat.from_command(request)
    now_ms = broker.now_ms()
    taken: list[ConsumerData] = []
    topics: list[TopicConfig] = []
    for data in beat.consumers:
        group = broker.groups.find(data.group_name, now_ms)
        if group is None:
            continue  # as RocketMQ: an unknown group that may not be made is passed over
        taken.append(data)
        name = RETRY_PREFIX + data.group_name
        if name not in broker.topics and len(name) <= MAX_RETRY_TOPIC_CHARS:
            queues = int(group["retryQueueNums"])
            topics.append(TopicConfig(name, queues, queues, READ_WRITE))
    changed = broker.clients.heartbeat(beat, taken, peer, request.language, request.version, now_ms)
    broker.notify_groups(changed)
    answer = HeartBeatAnswer(supports_v2=True, subscription_changed=bool(beat.consumers)).to_command()
    return _after_topics(broker, topics, answer) if topics else answer


async def _after_topics(broker: Broker, topics: list[TopicConfig], answer: Command) -> Command:
    try:
        await make_topic(broker, *topics)
    except Refused as refused:
        return refusal(refused.code, str(refused))
    return answer


def unregister_client(broker: Broker, request: Command, _: Peer) -> Command:
    leaving = UnregisterClient.from_command(request)
    changed = broker.clients.leave(leaving.client_id, leaving.producer_group, leaving.consumer_group)
    broker.notify_groups(changed)
    return success()


def consumer_list(broker: Broker, request: Command, _: Peer) -> Command:
    group = request.ext.get("consumerGroup", "")
    clients = broker.clients.consumers.get(group)
    if clients is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return success(body=dumps({"consumerIdList": clients.client_ids}))


def check_client_config(broker: Broker, request: Command, _peer: Peer) -> Command:
    """Whether a subscription's expression can be evaluated here."""
    members = load_object(request.body, "client configuration")
    subscription: Any = members.get("subscriptionData")
    if subscription is None:
        return success()
    if not isinstance(subscription, dict):
        raise BodyError("client configuration: subscriptionData is not an object")
    found = codes_of_expression(broker, subscription.get("subString"), subscription.get("expressionType"))
    return found if isinstance(found, Command) else success()


def connections_of(members: Any) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": peer.address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for peer, client in members.items()
    ]


def consumer_connections(broker: Broker, request: Command, _: Peer) -> Command:
    name = request.ext.get("consumerGroup", "")
    group = broker.clients.consumers.get(name)
    if group is None:
        return refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    return success(
        body=dumps(
            {
                "connectionSet": connections_of(group.members),
                "consumeFromWhere": group.consume_from_where,
                "consumeType": group.consume_type,
                "messageModel": group.message_model,
                "subscriptionTable": {topic: data.to_members() for topic, data in group.subscriptions.items()},
            }
        )
    )


def producer_connections(broker: Broker, request: Command, _: Peer) -> Command:
    name = request.ext.get("producerGroup", "")
    members = broker.clients.producers.get(name)
    if members is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    return success(body=dumps({"connectionSet": connections_of(members)}))


def groups_of_topic(broker: Broker, request: Command, _: Peer) -> Command:
    topic = request.ext.get("topic", "")
    online = [name for name, group in broker.clients.consumers.items() if topic in group.subscriptions]
    return success(body=dumps({"groupList": sorted({*online, *broker.offsets.groups_of(topic)})}))
