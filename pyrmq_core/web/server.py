"""`serve_web`: listens on a port and serves the page until it is cancelled."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from pyrmq_core import Admin, Client, Producer, PullConsumer
from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.listener import open_listener
from pyrmq_core.web.application import NAVIGATION, application
from pyrmq_core.web.changes import Changes
from pyrmq_core.web.guards import LOOPBACK_NAMES, FormToken, Guards, is_loopback
from pyrmq_core.web.history import SAMPLE_SECONDS, History
from pyrmq_core.web.look_ups import LookUps
from pyrmq_core.web.rendering import Pages
from pyrmq_core.web.shared_answers import FRESH_SECONDS, SharedAnswers

if TYPE_CHECKING:
    from hypercorn.typing import Framework

log = logging.getLogger(__name__)

GROUP = "pyrmq-web"
PORT = 8080
RENEW_SECONDS = 5


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The address to listen on, further host names that browsers use for it, and whether the page may change anything.

    Port 0 means a free one.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    allow_hosts: Sequence[str] = ()
    allow_changes: bool = False


async def serve_web(
    client: Client,
    nameservers: str,
    settings: WebSettings,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until it is cancelled; starts with the page's address. `client` is open, and stays so.

    Raises `NetworkError` when it cannot listen. `nameservers` is the text that every page shows.
    """
    listener = await open_listener(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    async with (
        Admin(client=client) as admin,
        PullConsumer(GROUP, client=client) as consumer,
        Producer(GROUP, client=client) as producer,
        trio.open_nursery() as nursery,
    ):
        shared = SharedAnswers()
        look_ups = LookUps(admin, consumer, shared, History())
        token = FormToken()
        pages = Pages(
            navigation=NAVIGATION,
            nameservers=nameservers,
            allow_changes=settings.allow_changes,
            fresh_seconds=round(FRESH_SECONDS),
            renew_seconds=RENEW_SECONDS,
            sample_seconds=round(SAMPLE_SECONDS),
            token=token.text,
        )
        changes = Changes(admin, producer, look_ups) if settings.allow_changes else None
        app = application(look_ups, pages, changes, token)
        hosts = {*settings.allow_hosts, settings.host, host, *(LOOPBACK_NAMES if _serves_loopback(host) else ())}
        guarded = Guards(app, hosts, allow_changes=settings.allow_changes)
        nursery.start_soon(look_ups.sample)
        await nursery.start(
            functools.partial(serve, cast("Framework", guarded), _config(listener.detach()), mode="asgi")
        )
        task_status.started(f"http://{format_address('127.0.0.1' if host in ('0.0.0.0', '::') else host, port)}/")


def _serves_loopback(host: str) -> bool:
    return is_loopback(host) or host in ("0.0.0.0", "::")


def _config(descriptor: int) -> Config:
    """Returns the server's settings: short waits for peers that say nothing, and no line for each request."""
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.accesslog = None
    config.errorlog = log
    config.include_server_header = False
    config.alpn_protocols = ["http/1.1"]
    config.h11_max_incomplete_size = 32 * 1024
    config.keep_alive_timeout = 15
    config.read_timeout = 20
    config.graceful_timeout = 1
    return config
