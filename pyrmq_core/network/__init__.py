"""Connections between RocketMQ's programs: each end may call and be called, many calls at once, matched by opaque.

`ConnectionPool` for those that ask, `serve` for those that answer; both are made of `Connection`s. This room is the
only home of sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named
from pyrmq_core.network.addresses import format_address, local_ip, parse_address
from pyrmq_core.network.calls import Asked, Call, Done
from pyrmq_core.network.connection import Connection
from pyrmq_core.network.handling import CutConnection, Handler, Peer, ask
from pyrmq_core.network.ownership import failure_in, open_owned_nursery
from pyrmq_core.network.pool import ConnectionPool

if TYPE_CHECKING:
    from pyrmq_core.network.serving import Listening, ServerBounds, TlsMode, serve
    from pyrmq_core.network.tls_settings import TlsSettings

__all__ = [
    "Asked",
    "Call",
    "Connection",
    "ConnectionPool",
    "CutConnection",
    "Done",
    "Handler",
    "Listening",
    "Peer",
    "ServerBounds",
    "TlsMode",
    "TlsSettings",
    "ask",
    "failure_in",
    "format_address",
    "local_ip",
    "open_owned_nursery",
    "parse_address",
    "serve",
]

# What a client does without.
_LAZY: Final = {
    "Listening": "pyrmq_core.network.serving",
    "ServerBounds": "pyrmq_core.network.serving",
    "TlsMode": "pyrmq_core.network.serving",
    "TlsSettings": "pyrmq_core.network.tls_settings",
    "serve": "pyrmq_core.network.serving",
}

if not TYPE_CHECKING:  # else every name would pass for one of these
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
