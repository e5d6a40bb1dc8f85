"""`open_ha_port`: the port of a master for its slaves."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import trio

from pyrmq_core.broker.ha.ha_server import HaServer
from pyrmq_core.broker.ha.replicas import CopyRules
from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.errors import InvalidArgument, NetworkError
from pyrmq_core.network.byte_server import BytePort, serve_bytes
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.server import TlsMode

log = line_logger(__name__)

MAX_PORT: Final = 65_535
# A slave sends its first report when it wrote nothing for haSendHeartbeatInterval, which Java looks at every second.
HEARTBEATS_TO_FIRST_REPORT: Final = 1.5
MILLISECONDS: Final = 1000


async def open_ha_port(config: BrokerConfig, ha: HaServer, services: trio.Nursery, host: str, port: int) -> int:
    """Listens for slaves at haListenPort, or at the port behind `port`, or a free one if that is taken.

    `host` and `port` are those that the broker listens on: a name is not looked up again.

    As slaves name no user and speak plain, a broker with access control or enforced TLS serves them only at a port that
    is set.
    """
    if guard := guard_without_ha_port(config):
        log.info("no slave can follow: with %s, set haListenPort, and let only slaves connect to it", guard)
        return min(port + 1, MAX_PORT)
    patience = HEARTBEATS_TO_FIRST_REPORT * config.ha_send_heartbeat_interval / MILLISECONDS
    serve_slaves = partial(serve_bytes, ha.serve_slave, host, patience=patience)
    if config.ha_listen_port >= 0:
        opened: BytePort = await services.start(serve_slaves, config.ha_listen_port)
        return opened.port
    try:
        opened = await services.start(serve_slaves, port + 1 if port < MAX_PORT else 0)
    except NetworkError as error:
        opened = await services.start(serve_slaves, 0)
        level = logging.WARNING if config.listen_port else logging.INFO  # a free port was as good as another
        text = "the port behind the broker's is taken (%s), so slaves are served at port %d; haListenPort sets one"
        log.log(level, text, error.address, opened.port)
    return opened.port


def guard_without_ha_port(config: BrokerConfig) -> str:
    """Returns what keeps slaves from a master whose haListenPort is not set; an empty text if nothing does."""
    if config.ha_listen_port >= 0:
        return ""
    if config.access.is_on:
        return "access control"
    return "enforced TLS" if config.tls.mode is TlsMode.ENFORCING else ""


def check_slaves_possible(config: BrokerConfig) -> None:
    """Raises `InvalidArgument` for a master whose sends wait for slaves that cannot follow it."""
    copies = CopyRules.of(config).copies
    if copies > 1 and (guard := guard_without_ha_port(config)):
        raise InvalidArgument(
            f"brokerRole is {config.broker_role}, each send waits for {copies - 1} slaves, and with {guard} none can "
            "follow without haListenPort: set it, and let only slaves connect to it; or set brokerRole=ASYNC_MASTER"
        )
