"""The fixtures of connection tests: a clock that jumps, and an address without a server."""

from tests.support.closed_port import closed_port
from tests.support.jumping_clock import jumping_clock

__all__ = ["closed_port", "jumping_clock"]
