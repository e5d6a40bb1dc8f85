"""A listening port: opening it, and accepting connections.

Accepting pauses while the process has no file descriptors or memory for more connections.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, NetworkError
from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine

try:
    import resource
except ImportError:  # Windows has neither the module nor a low limit
    resource = None  # type: ignore[assignment]

log = line_logger(__name__)

BACKLOG: Final = 1024  # connections that wait to be accepted (NettyServerConfig.serverSocketBacklog)
# The errors of `accept` while the process or the machine has no descriptors or memory for another socket.
NO_ROOM: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
NO_ROOM_PAUSE_SECONDS: Final = 0.1
# A server reserves a quarter of its file descriptors for files, log and calls, but at most this number.
MAX_RESERVED_FILES: Final = 1024


async def open_listener(host: str, port: int) -> socket.socket:
    """Returns a listening socket. An empty host means every interface, port 0 a free port.

    Raises `NetworkError` when it cannot listen, and `InvalidArgument` for a host that cannot be resolved.
    """
    address = format_address(host, port)
    try:
        addresses = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"cannot listen on {address}: {error}; give an address of this machine") from error
    family, kind, protocol, _, name = min(addresses, key=lambda info: info[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        text = f"cannot listen on {address}: {error.strerror}; stop what listens there, or choose another port"
        raise NetworkError(text, address=address, request_left=False) from error
    return listener


def raise_limit_of_files() -> None:
    """Raises this process's limit of open files as far as the system allows, as Java does (MaxFDLimit)."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):  # macOS reports a higher limit than it grants
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def connections_with_files(most: int) -> int:
    if resource is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            return min(most, limit - min(limit // 4, MAX_RESERVED_FILES))
    return most


async def accept(listener: socket.socket, no_room: RareLine) -> socket.socket:
    while True:
        try:
            accepted, _ = listener.accept()
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (BlockingIOError, InterruptedError):
            await trio.lowlevel.wait_readable(listener)
        except OSError as error:  # if not in NO_ROOM: the connection ended before it was accepted
            if error.errno in NO_ROOM:
                if no_room.is_due():
                    left_out = no_room.left_out()
                    log.error(
                        "cannot accept connections: %s; raise the limit of open files%s", error.strerror, left_out
                    )
                await trio.sleep(NO_ROOM_PAUSE_SECONDS)
            else:
                await trio.lowlevel.checkpoint()  # lets other tasks run, since many `accept`s may fail in this way
        else:
            return accepted
