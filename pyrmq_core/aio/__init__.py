"""The client for asyncio: the same names and arguments as `pyrmq_core`'s, awaited in an asyncio program.

Every call runs on the library's own trio loop, in one daemon thread that `pyrmq_core.blocking` shares. Its result
returns to the asyncio loop of the caller. Cancelling the waiting task ends the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_core.aio.admin import Admin
    from pyrmq_core.aio.client import Client
    from pyrmq_core.aio.deliveries import Deliveries, Delivery
    from pyrmq_core.aio.lite_pull_consumer import LitePullConsumer
    from pyrmq_core.aio.pop_consumer import PopConsumer, PopDelivery
    from pyrmq_core.aio.producer import Producer, SendWindow
    from pyrmq_core.aio.pull_consumer import PullConsumer
    from pyrmq_core.aio.push_consumer import PushConsumer

__all__ = [
    "Admin",
    "Client",
    "Deliveries",
    "Delivery",
    "LitePullConsumer",
    "PopConsumer",
    "PopDelivery",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SendWindow",
]

_LAZY: Final = {
    "pyrmq_core.aio.admin": "Admin",
    "pyrmq_core.aio.client": "Client",
    "pyrmq_core.aio.deliveries": "Deliveries Delivery",
    "pyrmq_core.aio.lite_pull_consumer": "LitePullConsumer",
    "pyrmq_core.aio.pop_consumer": "PopConsumer PopDelivery",
    "pyrmq_core.aio.producer": "Producer SendWindow",
    "pyrmq_core.aio.pull_consumer": "PullConsumer",
    "pyrmq_core.aio.push_consumer": "PushConsumer",
}

if not TYPE_CHECKING:  # without this, a type checker would accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
