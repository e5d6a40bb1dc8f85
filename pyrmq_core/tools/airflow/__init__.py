"""RocketMQ for Airflow: `MessageQueueTrigger(scheme="rocketmq", ...)` waits for a message of a topic.

Airflow calls `get_provider_info`, the package's entry point, in every command. So this module does not load the
provider and its trigger, which are in `message_queue`.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["get_provider_info"]

MESSAGE_QUEUE: Final = "pyrmq_core.tools.airflow.message_queue"


def get_provider_info() -> dict[str, Any]:
    """Returns this package's description for Airflow's manager of providers."""
    return {
        "package-name": "pyrmq-spark",
        "name": "RocketMQ",
        "description": "Assets and tasks that wait for messages of Apache RocketMQ.",
        "queues": [f"{MESSAGE_QUEUE}.RocketMQMessageQueueProvider"],
        "triggers": [{"integration-name": "RocketMQ", "python-modules": [MESSAGE_QUEUE]}],
    }
