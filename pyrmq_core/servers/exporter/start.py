"""`start_exporter`: serves a server's metrics if metricsExporterType is PROM (extra `metrics`)."""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, MissingLibrary, NetworkError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.exporter.families import Collect

log = line_logger(__name__)

# RocketMQ's names of the exporters that exist here.
EXPORTERS: Final = ("DISABLE", "PROM")
PROM: Final = "PROM"
# The address of the page without a setting. RocketMQ listens on all addresses.
DEFAULT_HOST: Final = "127.0.0.1"
SHOWN: Final = 80


def check_exporter(name: str) -> None:
    if name.upper() not in EXPORTERS:
        raise InvalidArgument(
            f"metricsExporterType is {name[:SHOWN]!r}; this server serves its figures to Prometheus alone: set it to "
            "PROM or DISABLE"
        )


async def start_exporter(
    nursery: trio.Nursery, collect: Collect, host: str, port: int, *, common: dict[str, str]
) -> str:
    """Starts serving the metrics that `collect` yields, in the nursery. Returns the `host:port` of the page.

    `common` has labels that are added to each metric. Raises `MissingLibrary` without the extra `metrics`, and
    `NetworkError`, which names the setting of the port, if the port cannot be opened.
    """
    try:
        from pyrmq_core.servers.exporter.server import serve_metrics
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("pyrmq_core"):
            raise
        raise MissingLibrary(
            f'metricsExporterType=PROM needs {missing.name}, which is not installed: pip install "pyrmq-spark[metrics]"'
        ) from missing
    serve = partial(serve_metrics, collect, host or DEFAULT_HOST, port, common=common)
    try:
        opened = await nursery.start(serve)
    except NetworkError as error:
        raise NetworkError(
            f"metricsPromExporterPort={port}: {error}", address=error.address, request_left=False
        ) from error
    address: str = opened.address
    log.info("metrics for Prometheus are at http://%s/metrics", address)
    return address
