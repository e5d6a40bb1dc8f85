"""`serve_metrics`: serves a server's metrics at /metrics. The number and the time of connections are limited."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from pyrmq_core.network.byte_server import ByteConnection, BytePort, serve_bytes
from pyrmq_core.network.paced_stream import paced
from pyrmq_core.servers.exporter.families import Collect
from pyrmq_core.servers.exporter.page import CONTENT_TYPE, MetricsPage

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 16
# At the limit of connections, a new one replaces one that has not requested the page within this time.
PATIENCE_SECONDS: Final = 5.0
# The time after which any connection is closed. Prometheus then opens another.
CONNECTION_SECONDS: Final = 120.0
PATHS: Final = ("/metrics", "/")

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def serve_metrics(
    collect: Collect,
    host: str,
    port: int,
    *,
    common: dict[str, str],
    task_status: trio.TaskStatus[BytePort] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves metrics over HTTP until cancelled. `nursery.start` returns the port.

    `collect` returns the metrics, and `common` has labels that are added to each. Raises `NetworkError` if the port
    cannot be opened.
    """
    page, config = MetricsPage(collect, common), _config()

    async def application(scope: dict[str, Any], receive: object, send: Send) -> None:
        if scope["type"] == "http":
            await _answer(page, scope, send)

    wrapped = ASGIWrapper(application)  # type: ignore[arg-type]  # hypercorn's types name each event's own class

    async def serve_one(connection: ByteConnection) -> None:
        with trio.move_on_after(CONNECTION_SECONDS):
            context = WorkerContext(None)
            async with paced(connection.stream, context.terminated.set) as stream:
                server = TCPServer(wrapped, config, context, ConnectionState({}), stream)  # type: ignore[arg-type]  # has what it uses of a stream
                await server.run()

    await serve_bytes(
        serve_one, host, port, max_connections=MAX_CONNECTIONS, patience=PATIENCE_SECONDS, task_status=task_status
    )


async def _answer(page: MetricsPage, scope: dict[str, Any], send: Send) -> None:
    status, body = 200, b""
    if scope["path"] not in PATHS:
        status, body = 404, b"the metrics are at /metrics\n"
    elif scope["method"] not in ("GET", "HEAD"):
        status, body = 405, b"the page is only read\n"
    else:
        try:
            body = await page.text()
        except Exception:
            log.exception("the metrics could not be collected")
            status, body = 500, b"the metrics could not be collected; the log says why\n"
    kind = CONTENT_TYPE if status == 200 else "text/plain; charset=utf-8"
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = log
    config.include_server_header = False
    config.h11_max_incomplete_size = 8 * 1024
    config.keep_alive_timeout = 75  # Prometheus asks every 15 to 60 s over one connection
    config.read_timeout = 80
    return config
