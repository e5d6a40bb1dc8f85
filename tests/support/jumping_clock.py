"""A clock for tests whose sockets are real: it jumps only when these have been silent for a while."""

import pytest
from trio.testing import MockClock


@pytest.fixture
def jumping_clock() -> MockClock:
    """A clock that jumps to the next deadline after 20 ms of real time without an event; loopback is faster."""
    return MockClock(autojump_threshold=0.02)
