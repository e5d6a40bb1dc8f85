"""Connections between RocketMQ's programs: each end may call and be called, many calls at once, matched by opaque.

`ConnectionPool` for those that ask, `serve` for those that answer; both are made of `Connection`s. This room is the
only home of sockets.
"""

from pyrmq_core.network.addresses import format_address, local_ip, parse_address
from pyrmq_core.network.calls import Asked, Call, Done
from pyrmq_core.network.connection import Connection
from pyrmq_core.network.handling import CutConnection, Handler, Peer, ask
from pyrmq_core.network.ownership import open_owned_nursery
from pyrmq_core.network.pool import ConnectionPool
from pyrmq_core.network.serving import Listening, TlsMode, serve
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
    "TlsMode",
    "TlsSettings",
    "ask",
    "format_address",
    "local_ip",
    "open_owned_nursery",
    "parse_address",
    "serve",
]
