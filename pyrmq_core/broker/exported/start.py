"""`start_exporter`: serves the broker's metrics where metricsExporterType is PROM (extra `metrics`)."""

from __future__ import annotations

from functools import partial

import trio

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.exported.broker_metrics import common_labels, families
from pyrmq_core.errors import MissingLibrary
from pyrmq_core.network.log_lines import line_logger

log = line_logger(__name__)


async def start_exporter(broker: Broker, nursery: trio.Nursery) -> None:
    """Returns when the port is open; raises `MissingLibrary` without the libraries."""
    try:
        from pyrmq_core.exporter.server import serve_metrics
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("pyrmq_core"):
            raise
        raise MissingLibrary(
            f'metricsExporterType=PROM needs {missing.name}, which is not installed: pip install "pyrmq-spark[metrics]"'
        ) from missing
    config = broker.config
    serve = partial(
        serve_metrics,
        partial(families, broker),
        config.metrics_prom_exporter_host or "127.0.0.1",
        config.metrics_prom_exporter_port,
        common=common_labels(broker),
    )
    port = await nursery.start(serve)
    broker.metrics_address = port.address
    log.info("metrics for Prometheus are at http://%s/metrics", port.address)
