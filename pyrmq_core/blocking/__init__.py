"""The client for threads without a loop: the same names and arguments as `pyrmq_core`'s, no await.

One trio loop in one daemon thread serves the whole process; every call is lent to it. Safe from many threads, in a
child after `fork` (which drops the parent's connections unclosed and opens its own on first use), and at exit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq_core.blocking.admin import Admin
from pyrmq_core.blocking.client import Client
from pyrmq_core.blocking.producer import Producer, SendWindow
from pyrmq_core.blocking.pull_consumer import PullConsumer

if TYPE_CHECKING:
    from pyrmq_core.blocking.embedded import EmbeddedCluster

__all__ = ["Admin", "Client", "EmbeddedCluster", "Producer", "PullConsumer", "SendWindow"]


def __getattr__(name: str) -> Any:
    """The servers are loaded when somebody embeds them, not by every client."""
    if name == "EmbeddedCluster":
        from pyrmq_core.blocking.embedded import EmbeddedCluster

        return EmbeddedCluster
    raise AttributeError(f"pyrmq_core.blocking has no public name {name!r}")
