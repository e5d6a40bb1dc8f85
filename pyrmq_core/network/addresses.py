"""Addresses as RocketMQ writes them: `host:port`, with an IPv6 host in brackets."""

from __future__ import annotations

import socket

from pyrmq_core.errors import InvalidArgument


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Returns the host (without brackets) and the port of `host:port`. Raises `InvalidArgument` for other texts."""
    host, colon, port_text = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host and not bracketed):
        raise InvalidArgument(f"{text!r} is not an address; write host:port, and [host]:port for IPv6")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65_535):
        raise InvalidArgument(f"{text!r} has no port from 0 to 65535 after its last colon; write host:port")
    return host, int(port_text)


def local_ip() -> str:
    """Returns this machine's IP address as other machines are likely to see it, or 127.0.0.1 without a network.

    That is the source address that the kernel would use for a packet to another network. Nothing is sent.
    """
    for family, outside in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
