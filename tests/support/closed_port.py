"""An address at which no server listens."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def closed_port() -> Iterator[str]:
    """Yields an address whose port is taken and has no listener: no other process can take it during the test.

    The test itself can listen there, with SO_REUSEADDR.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"
