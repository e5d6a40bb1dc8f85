"""The client for threads without an event loop: the same names and arguments as `pyrmq_core`'s, without `await`.

All calls of a process run on one trio loop in one daemon thread. They are safe from many threads, and when the
interpreter exits. A child process after `fork` leaves the parent's connections alone, and opens its own on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_core.blocking.admin import Admin
    from pyrmq_core.blocking.client import Client
    from pyrmq_core.blocking.embedded import EmbeddedCluster
    from pyrmq_core.blocking.lite_pull_consumer import LitePullConsumer
    from pyrmq_core.blocking.pop_consumer import PopConsumer, PopDelivery
    from pyrmq_core.blocking.producer import Producer, SendWindow
    from pyrmq_core.blocking.pull_consumer import PullConsumer
    from pyrmq_core.blocking.push_consumer import Deliveries, Delivery, PushConsumer

__all__ = [
    "Admin",
    "Client",
    "Deliveries",
    "Delivery",
    "EmbeddedCluster",
    "LitePullConsumer",
    "PopConsumer",
    "PopDelivery",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SendWindow",
]

_LAZY: Final = {
    "pyrmq_core.blocking.admin": "Admin",
    "pyrmq_core.blocking.client": "Client",
    "pyrmq_core.blocking.embedded": "EmbeddedCluster",
    "pyrmq_core.blocking.lite_pull_consumer": "LitePullConsumer",
    "pyrmq_core.blocking.pop_consumer": "PopConsumer PopDelivery",
    "pyrmq_core.blocking.producer": "Producer SendWindow",
    "pyrmq_core.blocking.pull_consumer": "PullConsumer",
    "pyrmq_core.blocking.push_consumer": "Deliveries Delivery PushConsumer",
}

if not TYPE_CHECKING:  # a type checker would otherwise accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
