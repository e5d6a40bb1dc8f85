"""`serve_bytes`: accepts connections that carry other bytes than remoting's, each with a task of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.listener import accept, open_listener
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine

log = line_logger(__name__)

# Returns when the connection is to be closed.
BytesHandler = Callable[[trio.abc.Stream, str], Awaitable[None]]
MAX_BYTE_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class BytePort:
    """A port that is served."""

    host: str
    port: int

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)


async def serve_bytes(
    handler: BytesHandler,
    host: str,
    port: int,
    *,
    max_connections: int = MAX_BYTE_CONNECTIONS,
    task_status: trio.TaskStatus[BytePort] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled; `nursery.start` returns the `BytePort`. A failing handler ends its connection alone.

    Raises `NetworkError` when it cannot listen, and `InvalidArgument` for a host that cannot be resolved.
    """
    listener = await open_listener(host, port)
    no_room, refused, number_open = RareLine(), RareLine(), 0

    async def run(stream: trio.SocketStream, address: str) -> None:
        nonlocal number_open
        try:
            await handler(stream, address)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("the connection with %s ended: %s", address, error.__cause__ or error)
        except Exception:
            log.exception("the connection with %s is closed by a defect", address)
        finally:
            number_open -= 1
            await trio.aclose_forcefully(stream)

    try:
        async with trio.open_nursery() as nursery:
            bound = BytePort(*listener.getsockname()[:2])
            task_status.started(bound)
            while True:
                accepted = await accept(listener, no_room)
                if number_open >= max_connections:
                    if refused.is_due():
                        text = f"{bound.address} has {max_connections} connections, its limit; more are refused"
                        log.warning("%s%s", text, refused.left_out())
                    accepted.close()
                    await trio.lowlevel.checkpoint()
                    continue
                try:
                    address = format_address(*accepted.getpeername()[:2])
                    stream = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
                except OSError as error:  # the other end is gone already
                    log.debug("a connection was accepted and could not be used", exc_info=error)
                    accepted.close()
                    await trio.lowlevel.checkpoint()
                    continue
                number_open += 1
                nursery.start_soon(run, stream, address)
    finally:
        listener.close()
