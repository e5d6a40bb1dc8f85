"""How a connection to an address is made, plain or TLS, and how each way it fails is told."""

from __future__ import annotations

import contextlib
import socket
import ssl

import trio

from pyrmq_core.errors import ConnectFailed
from pyrmq_core.network.addresses import parse_address
from pyrmq_core.network.wire import SocketWire, StreamWire, Wire


async def open_wire(address: str, *, tls: ssl.SSLContext | None, timeout: float) -> Wire:
    """A wire to the address, its TLS handshake done; `timeout` in seconds counts for all of it.

    Raises `ConnectFailed` that names the address and the reason, and `InvalidArgument` for what is no address.
    """
    host, port = parse_address(address)
    with trio.move_on_after(timeout):
        try:
            connected = await _connect(host, port)
        except OSError as error:
            raise _failed(address, _reason(error)) from error
        if tls is None:
            return SocketWire(connected)
        return await _open_tls(connected, host, address, tls)
    raise _failed(address, f"nobody accepted within {timeout:g} s")


async def _connect(host: str, port: int) -> socket.socket:
    """The first of the host's addresses that accepts."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for family, kind, protocol, _, name in found:
        attempt = trio.socket.socket(family, kind, protocol)
        try:
            await attempt.connect(name)
        except OSError as error:
            attempt.close()
            failure = failure or error
        except BaseException:
            attempt.close()
            raise
        else:
            attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return socket.socket(fileno=attempt.detach())
    raise failure or OSError(f"{host} has no address")


async def _open_tls(connected: socket.socket, host: str, address: str, tls: ssl.SSLContext) -> Wire:
    plain = SocketWire(connected)
    stream = trio.SSLStream(
        trio.SocketStream(trio.socket.from_stdlib_socket(connected)), tls, server_hostname=host, https_compatible=True
    )
    try:
        await stream.do_handshake()
    except BaseException as error:
        with contextlib.suppress(Exception):
            await trio.aclose_forcefully(stream)
        if isinstance(error, trio.BrokenResourceError):
            raise _failed(address, _tls_reason(error)) from error
        raise
    return StreamWire(stream, plain.address, plain.local_address)


def _failed(address: str, reason: str) -> ConnectFailed:
    return ConnectFailed(f"no connection to {address}: {reason}", address=address)


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; nobody listens there: is the server started, and is the port right?"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror}); correct it or use the IP address"
    return f"{error.strerror or error}; look at the route and the firewall between here and there"


def _tls_reason(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"TLS: its certificate is not accepted ({cause.verify_message}); trust its authority in the SSLContext"
    if isinstance(cause, ssl.SSLError) and cause.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "TLS: it answered in plain; switch TLS off here, or on there"
    if isinstance(cause, ssl.SSLError):
        return f"TLS: {cause.reason or cause}; compare the TLS settings of both ends"
    return "TLS: it closed the connection during the handshake; is TLS switched on there?"
