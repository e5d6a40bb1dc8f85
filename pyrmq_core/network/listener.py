"""A listening port: how it is opened, how connections are taken from it, and what happens when there are too many."""

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
except ImportError:  # Windows has none, nor a limit worth knowing
    resource = None  # type: ignore[assignment]

log = line_logger(__name__)

BACKLOG: Final = 1024  # NettyServerConfig.serverSocketBacklog
# What accepting raises while the process or the machine has no room for another socket.
NO_ROOM: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
NO_ROOM_PAUSE_SECONDS: Final = 0.1
# Descriptors that connections leave for the files of a server, its log, and calls of its own: a quarter, this at most.
MAX_RESERVED_FILES: Final = 1024


async def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens; an empty host is every interface, port 0 a free one. `NetworkError` says why it cannot."""
    address = format_address(host, port)
    try:
        found = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"cannot listen on {address}: {error}; give an address of this machine") from error
    family, kind, protocol, _, name = min(found, key=lambda info: info[0] != socket.AF_INET)
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
    """Lets this process open as many files as it may at all, as Java does at its start (MaxFDLimit)."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):  # macOS has a limit of its own below the one that it names
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def connections_with_files(most: int) -> int:
    """How many connections leave room for files below the process's limit of descriptors; `most` at most."""
    if resource is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            return min(most, limit - min(limit // 4, MAX_RESERVED_FILES))
    return most


async def accept(listener: socket.socket, no_room: RareLine) -> socket.socket:
    """The next connection; waits while there is none, and while there is no room for one, which the log is told."""
    while True:
        try:
            accepted, _ = listener.accept()
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (BlockingIOError, InterruptedError):
            await trio.lowlevel.wait_readable(listener)
        except OSError as error:  # else the connection was gone before it was taken
            if error.errno in NO_ROOM:
                if no_room.is_due():
                    left_out = no_room.left_out()
                    log.error(
                        "cannot accept connections: %s; raise the limit of open files%s", error.strerror, left_out
                    )
                await trio.sleep(NO_ROOM_PAUSE_SECONDS)
        else:
            return accepted
