"""Airflow's message queue provider for the scheme `rocketmq`, and its trigger, which waits for messages."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
from airflow.sdk.bases.hook import BaseHook
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from pyrmq_core.aio import Client, LitePullConsumer
from pyrmq_core.model import ConsumeFromWhere, MessageExt

SCHEME: Final = "rocketmq"
IN_QUEUE: Final = {"group", "tags", "sql", "conn_id"}


class RocketMQMessageTrigger(BaseEventTrigger):  # type: ignore[misc] # Airflow is not installed where types are checked
    """A trigger that joins a consumer group, waits for messages of a topic, and fires one event.

    The event is `{"messages": [...]}` with up to `max_messages` messages of one queue, in order. Their offset is
    committed after Airflow has accepted the event. A new group begins at the oldest message. `conn_id` names an Airflow
    connection whose login and password are the access key and the secret key.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        nameserver: str,
        tags: str = "*",
        sql: str | None = None,
        max_messages: int = 1,
        conn_id: str | None = None,
    ) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {
            "topic": topic,
            "group": group,
            "nameserver": nameserver,
            "tags": tags,
            "sql": sql,
            "max_messages": max_messages,
            "conn_id": conn_id,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the path of the class and the arguments with which Airflow creates the trigger again."""
        return f"{__name__}.{type(self).__qualname__}", self.arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Waits for messages without a time limit, and yields one event with them.

        If Airflow does not accept the event, the messages are delivered again.
        """
        topic, group, nameserver, tags, sql, max_messages, conn_id = self.arguments.values()
        keys = {}
        if conn_id is not None:
            connection = await BaseHook.aget_connection(conn_id)
            keys = {"access_key": connection.login, "secret_key": connection.password}
        async with (
            Client(nameserver=nameserver, **keys) as client,
            LitePullConsumer(
                group,
                client=client,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                pull_batch_size=max_messages,
                auto_commit=False,
            ) as consumer,
        ):
            await consumer.subscribe(topic, tags=tags, sql=sql)
            while not (messages := await consumer.poll()):
                pass
            yield TriggerEvent({"messages": [as_json(message) for message in messages]})
            await consumer.commit()


class RocketMQMessageQueueProvider(BaseMessageQueueProvider):  # type: ignore[misc] # as above
    """A provider for the scheme `rocketmq` and for URLs `rocketmq://host:port/topic?group=...&tags=...`."""

    scheme = SCHEME

    def queue_matches(self, queue: str) -> bool:
        return queue.startswith(f"{SCHEME}://")

    def trigger_class(self) -> type[RocketMQMessageTrigger]:
        return RocketMQMessageTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Parses a queue's URL into the trigger's arguments. Raises `ValueError` for an unknown or missing part."""
        parts = urlsplit(queue)
        named = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(named.keys() - IN_QUEUE):
            raise ValueError(f"{queue} names {', '.join(unknown)}; it may name {', '.join(sorted(IN_QUEUE))}")
        arguments = {"nameserver": parts.netloc.replace(",", ";"), "topic": parts.path.strip("/"), **named}
        if lacking := [name for name in ("nameserver", "topic", "group") if not (kwargs | arguments).get(name)]:
            raise ValueError(f"{queue} has no {', '.join(lacking)}: {SCHEME}://HOST:PORT/TOPIC?group=GROUP names all")
        return arguments


def as_json(message: MessageExt) -> dict[str, Any]:
    """Returns a message's fields as a dict for JSON. A body that is not UTF-8 is in `body_base64`, not in `body`."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    return body | {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.user_properties,
        "store_timestamp_ms": message.store_timestamp_ms,
    }
