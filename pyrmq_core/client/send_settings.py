"""How a producer sends: names and defaults of client/producer/DefaultMQProducer.java."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How a producer sends; RocketMQ's names and defaults, seconds for times."""

    producer_group: str
    namespace: str | None = None
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    timeout_per_attempt: float | None = None
    retry_another_broker_when_not_store_ok: bool = False
    create_topic_key: str = "TBW102"
    default_topic_queue_nums: int = 4
    start_detector_enable: bool = False
