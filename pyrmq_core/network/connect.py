"""The opening of connections, with or without TLS, and an error text for each kind of failure."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - getaddrinfo loads it at its first call: a fork meanwhile would hang the child
import errno
import socket
import ssl
from contextlib import suppress
from typing import Final

import trio

from pyrmq_core.errors import ConnectFailed
from pyrmq_core.network.addresses import parse_address
from pyrmq_core.network.connection.wire import SocketWire, StreamWire, Wire
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.tls_reasons import tls_reason

log = line_logger(__name__)

ALERT_SECONDS: Final = 1.0
MAX_UNREAD_BYTES: Final = 65536


async def open_wire(address: str, *, tls: ssl.SSLContext | None, timeout: float) -> Wire:
    """Connects to an address, with a TLS handshake if `tls` is set. Returns the byte stream, a `Wire`.

    `timeout` (seconds) includes the handshake. Raises `ConnectFailed`, which names the address and the
    reason, and `InvalidArgument` for a bad address.
    """
    host, port = parse_address(address)
    with trio.move_on_after(timeout):
        try:
            wire = await _connect(host, port)
        except (OSError, UnicodeError) as error:
            raise _failed(address, _reason(error)) from error
        if tls is None:
            return wire
        try:
            return await _over_tls(wire, tls, server_side=False, host=host)
        except (trio.BrokenResourceError, ssl.CertificateError) as error:
            raise _failed(address, _tls_reason(error)) from error
    raise _failed(address, f"no server accepted within {timeout:g} s; is the address right, and no firewall between?")


async def open_stream(address: str, *, timeout: float) -> trio.SocketStream:
    """Returns a connection without TLS, for other protocols than remoting. `timeout` is in seconds.

    Raises `ConnectFailed`, which names the address and the reason, and `InvalidArgument` for a bad address.
    """
    host, port = parse_address(address)
    with trio.move_on_after(timeout):
        try:
            wire = await _connect(host, port)
        except (OSError, UnicodeError) as error:
            raise _failed(address, _reason(error)) from error
        return trio.SocketStream(trio.socket.from_stdlib_socket(wire.socket))
    raise _failed(address, f"no server accepted within {timeout:g} s; is the address right, and no firewall between?")


async def _connect(host: str, port: int) -> SocketWire:
    addresses = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for family, kind, protocol, _, name in addresses:
        with trio.socket.socket(family, kind, protocol) as attempt:
            try:
                await attempt.connect(name)
                attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                attempt.getpeername()  # raises if the connection has already ended
            except OSError as error:
                failure = failure or error
            else:
                return SocketWire(socket.socket(fileno=attempt.detach()))
    raise failure or OSError(f"{host} has no address")


async def accept_tls(wire: SocketWire, tls: ssl.SSLContext, timeout: float) -> Wire:
    try:
        with trio.fail_after(timeout):
            return await _over_tls(wire, tls, server_side=True)
    except (trio.BrokenResourceError, trio.TooSlowError) as error:
        reason = error.__cause__ or "it took too long"
        log.warning("closing the connection with %s: no TLS handshake: %s", wire.address, reason)
        raise ConnectionAbortedError(f"no TLS handshake: {reason}") from error


async def _over_tls(wire: SocketWire, tls: ssl.SSLContext, *, server_side: bool, host: str | None = None) -> Wire:
    transport = trio.SocketStream(trio.socket.from_stdlib_socket(wire.socket))
    stream = trio.SSLStream(transport, tls, server_hostname=host, server_side=server_side, https_compatible=True)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        await _send_alert(stream, transport)
        await trio.aclose_forcefully(stream)
        raise
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return StreamWire(stream, wire.address, wire.local_address)


async def _send_alert(stream: trio.SSLStream[trio.SocketStream], transport: trio.SocketStream) -> None:
    """Sends OpenSSL's alert with the reason of a failed handshake to the peer. Trio does not send it."""
    alert = stream._outgoing.read()
    with trio.move_on_after(ALERT_SECONDS), suppress(trio.BrokenResourceError):
        await transport.send_all(alert)
        await transport.send_eof()
        await transport.receive_some(MAX_UNREAD_BYTES)  # closing a socket with unread bytes would discard the alert


def _failed(address: str, reason: str) -> ConnectFailed:
    return ConnectFailed(f"no connection to {address}: {reason}", address=address)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; nothing listens there: is the server started, and is the port right?"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror}); correct it or use the IP address"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}; each server takes a connection: raise this process's limit of open files (ulimit -n)"
    return f"{getattr(error, 'strerror', None) or error}; look at the route and the firewall between here and there"


def _tls_reason(error: BaseException) -> str:
    closed = (
        "TLS: it closed the connection during the handshake; is TLS switched on there, and is a certificate wanted?"
    )
    return tls_reason(error) or closed
