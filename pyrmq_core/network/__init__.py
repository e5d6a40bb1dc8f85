"""Connections between RocketMQ's programs. Each end may send requests to the other, many at once.

`pool` opens connections (`connect`), `server` accepts them (`listener`, `tls_settings`), and `connection` is a single
one. `http_get` fetches a text, `addresses` reads and writes `host:port`, `nurseries` extracts failures from exception
groups, `turns` lets other tasks run between long steps, `log_lines` and `rare_lines` limit log lines, and `process_end`
ends programs. Only this package uses sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_core.network.addresses import format_address, local_ip, parse_address
    from pyrmq_core.network.connection.answers import ask
    from pyrmq_core.network.connection.calls import BulkCall, Call, Done, RowCall
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
    "RowCall",
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

# Imported at first use, since not every process that uses this package needs connections.
_LAZY: Final = {
    "pyrmq_core.network.addresses": "format_address local_ip parse_address",
    "pyrmq_core.network.connection.answers": "ask",
    "pyrmq_core.network.connection.calls": "BulkCall Call Done RowCall",
    "pyrmq_core.network.connection.connection": "Connection",
    "pyrmq_core.network.connection.peer": "CutConnection Handler LateAnswer Peer",
    "pyrmq_core.network.loop_access": "ON_LOOP LoopAccess",
    "pyrmq_core.network.nurseries": "failure_in open_lasting_nursery open_owned_nursery",
    "pyrmq_core.network.pool": "ConnectionPool",
    "pyrmq_core.network.server": "Listening ServerBounds TlsMode serve",
    "pyrmq_core.network.tls_settings": "TlsSettings",
}

if not TYPE_CHECKING:  # a type checker would otherwise accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
