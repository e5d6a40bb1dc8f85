"""The client for threads without a loop: the same names and arguments as `pyrmq_core`'s, no await.

One trio loop in one daemon thread serves the whole process; every call is lent to it. Safe from many threads, in a
child after `fork` (which drops the parent's connections unclosed and opens its own on first use), and at exit.
"""

from pyrmq_core.blocking.client import Client
from pyrmq_core.blocking.producer import Producer, SendWindow
from pyrmq_core.blocking.pull_consumer import PullConsumer

__all__ = ["Client", "Producer", "PullConsumer", "SendWindow"]
