"""The client for threads without an event loop: the same names and arguments as `pyrmq_core`'s, without `await`.

All calls of a process run on one trio loop in one daemon thread. They may be made from many threads, and while the
interpreter exits. A child process after `fork` does not touch the parent's connections, and opens its own at its first
call.
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

if not TYPE_CHECKING:  # without this, a type checker would accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
