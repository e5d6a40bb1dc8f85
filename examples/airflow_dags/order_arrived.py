"""A DAG of Airflow 3 that runs when an order arrives: an asset, watched by a trigger that waits for messages."""

from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher, dag, task

NAMESERVER = "127.0.0.1:9876"

trigger = MessageQueueTrigger(scheme="rocketmq", nameserver=NAMESERVER, topic="orders", group="airflow-orders")
orders = Asset("orders", watchers=[AssetWatcher(name="arrived", trigger=trigger)])


@dag(schedule=[orders])
def order_arrived() -> None:
    @task
    def pack(triggering_asset_events: Any = None) -> list[str]:
        """Takes the messages of the events that started this run: several if they came close together."""
        events = triggering_asset_events[orders]
        return [message["body"] for event in events for message in event.extra["payload"]["messages"]]

    pack()


order_arrived()
