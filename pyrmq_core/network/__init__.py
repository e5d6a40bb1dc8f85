"""Connections between RocketMQ's programs: each end may call and be called, many calls at once, matched by opaque.

`pool` opens connections (`connect`) and `server` accepts them (`listener`, `tls_settings`), and `connection` is one of
them. `http_get` fetches a text, `addresses` reads and writes `host:port`, `nurseries` extracts failures from exception
groups, and `log_lines`, `rare_lines` and `process_end` keep logs and endings short. Only this package uses sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_core.network.addresses import format_address, local_ip, parse_address
    from pyrmq_core.network.connection.answers import ask
    from pyrmq_core.network.connection.calls import BulkCall, Call, Done
    from pyrmq_core.network.connection.connection import Connection
    from pyrmq_core.network.connection.peer import CutConnection, Handler, LateAnswer, Peer
    from pyrmq_core.network.loop_access import ON_LOOP, LoopAccess
    from pyrmq_core.network.nurseries import failure_in, open_lasting_nursery, open_owned_nursery
    from pyrmq_core.network.pool import ConnectionPool
    from pyrmq_core.network.server import Listening, ServerBounds, TlsMode, serve
    from pyrmq_core.network.tls_settings import TlsSettings

__all__ = [
    "ON_LOOP",
    "BulkCall",
    "Call",
    "Connection",
    "ConnectionPool",
    "CutConnection",
    "Done",
    "Handler",
    "LateAnswer",
    "Listening",
    "LoopAccess",
    "Peer",
    "ServerBounds",
    "TlsMode",
    "TlsSettings",
    "ask",
    "failure_in",
    "format_address",
    "local_ip",
    "open_lasting_nursery",
    "open_owned_nursery",
    "parse_address",
    "serve",
]

# Loaded at first use: not every process that uses this package needs connections.
_LAZY: Final = {
    "format_address": "pyrmq_core.network.addresses",
    "local_ip": "pyrmq_core.network.addresses",
    "parse_address": "pyrmq_core.network.addresses",
    "ask": "pyrmq_core.network.connection.answers",
    "BulkCall": "pyrmq_core.network.connection.calls",
    "Call": "pyrmq_core.network.connection.calls",
    "Done": "pyrmq_core.network.connection.calls",
    "Connection": "pyrmq_core.network.connection.connection",
    "CutConnection": "pyrmq_core.network.connection.peer",
    "Handler": "pyrmq_core.network.connection.peer",
    "LateAnswer": "pyrmq_core.network.connection.peer",
    "Peer": "pyrmq_core.network.connection.peer",
    "ON_LOOP": "pyrmq_core.network.loop_access",
    "LoopAccess": "pyrmq_core.network.loop_access",
    "failure_in": "pyrmq_core.network.nurseries",
    "open_lasting_nursery": "pyrmq_core.network.nurseries",
    "open_owned_nursery": "pyrmq_core.network.nurseries",
    "ConnectionPool": "pyrmq_core.network.pool",
    "Listening": "pyrmq_core.network.server",
    "ServerBounds": "pyrmq_core.network.server",
    "TlsMode": "pyrmq_core.network.server",
    "TlsSettings": "pyrmq_core.network.tls_settings",
    "serve": "pyrmq_core.network.server",
}

if not TYPE_CHECKING:  # a type checker would otherwise accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
