"""`serve_web`: listens on a port and serves the page until it is cancelled."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from pyrmq_core import Admin, Client, Producer, PullConsumer
from pyrmq_core.client.admin.admin import TIMEOUT_SECONDS
from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.byte_server import ByteConnection, serve_listener
from pyrmq_core.network.listener import connections_with_files, open_listener
from pyrmq_core.network.paced_stream import paced
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_core.tools.web.application import LOG, NAVIGATION, application
from pyrmq_core.tools.web.bodies import AsgiMessage, Receive
from pyrmq_core.tools.web.change_log import ChangeLog
from pyrmq_core.tools.web.changes import Changes
from pyrmq_core.tools.web.guards import LOOPBACK_NAMES, App, FormToken, Guards, Scope, Send, is_loopback
from pyrmq_core.tools.web.history import SAMPLE_SECONDS
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.masks import Masks
from pyrmq_core.tools.web.rendering import Pages
from pyrmq_core.tools.web.resends import Resends
from pyrmq_core.tools.web.shared_answers import FRESH_SECONDS
from pyrmq_core.tools.web.static_files import StaticFiles

log = logging.getLogger(__name__)

PRODUCER_GROUP = "pyrmq-web"
PORT = 8080
RENEW_SECONDS = 5
# The most seconds in which a request's head must arrive, after the connection or after the last response.
HEAD_SECONDS: Final = 10
# The most connections. A further one replaces the oldest one whose peer keeps the page waiting.
MAX_CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The address to listen on, further allowed host names, and whether the page may make changes.

    Port 0 means a free port. `masks` are texts for `Masks.parse`. `change_log` is the file in which changes are
    recorded, with the viewer's name from the HTTP header `viewer_header`. `timeout` is for one request to a server, in
    seconds, and `namespace` stands before the names of topics and groups at the servers.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    allow_hosts: Sequence[str] = ()
    allow_changes: bool = False
    masks: Sequence[str] = ()
    change_log: Path | None = None
    viewer_header: str | None = None
    timeout: float = TIMEOUT_SECONDS
    namespace: str | None = None


async def serve_web(
    client: Client,
    nameservers: str,
    settings: WebSettings,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves the page until cancelled. `nursery.start` returns its address.

    `client` must be open and is not closed. `nameservers` is a text that every page shows. Raises `NetworkError` if the
    port cannot be opened, and `InvalidArgument` for an invalid pattern in `settings.masks`.
    """
    masks, timeout, namespace = Masks.parse(settings.masks), settings.timeout, settings.namespace
    listener = await open_listener(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    async with (
        Admin(client=client, timeout=timeout, namespace=namespace) as admin,
        PullConsumer(TOOLS_GROUP, client=client, timeout=timeout, namespace=namespace) as consumer,
        Producer(PRODUCER_GROUP, client=client, send_timeout=timeout, namespace=namespace) as producer,
        trio.open_nursery() as nursery,
    ):
        look_ups = LookUps(admin, consumer, masks)
        token, files = FormToken(), StaticFiles()
        pages = Pages(
            navigation=(*NAVIGATION, LOG) if settings.allow_changes else NAVIGATION,
            nameservers=nameservers,
            allow_changes=settings.allow_changes,
            fresh_seconds=round(FRESH_SECONDS),
            renew_seconds=RENEW_SECONDS,
            sample_seconds=round(SAMPLE_SECONDS),
            token=token.text,
            static=files.address,
        )
        log_of_changes = ChangeLog(settings.change_log)
        resends = Resends(admin, consumer, look_ups.read, log_of_changes, nursery)
        changes = Changes(admin, producer, look_ups, log_of_changes, resends) if settings.allow_changes else None
        app = application(look_ups, pages, changes, token, files, settings.viewer_header)
        hosts = {*settings.allow_hosts, settings.host, host, *(LOOPBACK_NAMES if _serves_loopback(host) else ())}
        guarded = Guards(app, hosts, allow_changes=settings.allow_changes)
        nursery.start_soon(look_ups.sample)
        nursery.start_soon(look_ups.figures.look_up)
        nursery.start_soon(look_ups.health.look_up)
        most = connections_with_files(MAX_CONNECTIONS)
        serve_one = functools.partial(_serve_one, guarded, _config())
        await nursery.start(functools.partial(serve_listener, serve_one, listener, max_connections=most, patience=0.0))
        task_status.started(f"http://{format_address('127.0.0.1' if host in ('0.0.0.0', '::') else host, port)}/")


def _serves_loopback(host: str) -> bool:
    return is_loopback(host) or host in ("0.0.0.0", "::")


async def _serve_one(app: App, config: Config, connection: ByteConnection) -> None:
    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        # A new connection may replace this one while its peer is slow, but not while the page works on a request.

        async def receive_marked() -> AsgiMessage:
            message = await receive()
            connection.is_known = not message.get("more_body", False)
            return message

        async def send_marked(message: AsgiMessage) -> None:
            connection.is_known = False
            await send(message)

        await app(scope, receive_marked, send_marked)

    context = WorkerContext(None)
    async with paced(connection.stream, context.terminated.set) as stream:
        wrapped = ASGIWrapper(marked)  # type: ignore[arg-type]  # hypercorn's types name each event's own class
        server = TCPServer(wrapped, config, context, ConnectionState({}), stream)  # type: ignore[arg-type]  # has what it uses of a stream
        await server.run()


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = log
    config.include_server_header = False
    config.h11_max_incomplete_size = 32 * 1024
    config.h2_max_concurrent_streams = 8
    config.keep_alive_timeout = HEAD_SECONDS
    return config
