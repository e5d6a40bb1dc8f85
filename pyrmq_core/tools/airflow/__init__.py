"""RocketMQ for Airflow: `MessageQueueTrigger(scheme="rocketmq", ...)` waits for a message of a topic.

Every Airflow command calls `get_provider_info`, the package's entry point. To keep this fast, this module does not
import `message_queue`, which has the provider and its trigger.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["get_provider_info"]

MESSAGE_QUEUE: Final = "pyrmq_core.tools.airflow.message_queue"


def get_provider_info() -> dict[str, Any]:
    """Returns the description of this package for Airflow's `ProvidersManager`."""
    return {
        "package-name": "pyrmq-spark",
        "name": "RocketMQ",
        "description": "Assets and tasks that wait for messages of Apache RocketMQ.",
        "queues": [f"{MESSAGE_QUEUE}.RocketMQMessageQueueProvider"],
        "triggers": [{"integration-name": "RocketMQ", "python-modules": [MESSAGE_QUEUE]}],
    }
