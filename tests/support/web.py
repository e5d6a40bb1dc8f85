"""A web server that answers every request with one page, which may be wrong in many ways."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import trio

from tests.support.waiting import until


@dataclass
class Page:
    """The answer to a request; `raw` instead of HTTP, `silent` instead of any answer."""

    body: bytes
    status: str = "200 OK"
    headers: str = ""
    raw: bytes | None = None
    silent: bool = False

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        head = f"HTTP/1.1 {self.status}\r\n{self.headers}Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + self.body


@dataclass
class WebServer:
    """`page` may be changed at any time."""

    page: Page
    url: str = ""
    paths: list[str] = field(default_factory=list)

    async def asked_again(self, times: int) -> None:
        """Returns when so many further requests have arrived."""
        expected = len(self.paths) + times
        await until(lambda: len(self.paths) >= expected)

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            request = await stream.receive_some(65536)
            self.paths.append(request.split(b" ")[1].decode())
            if self.page.silent:
                await trio.sleep_forever()
            await stream.send_all(self.page.encoded())


@asynccontextmanager
async def web_server(page: Page) -> AsyncIterator[WebServer]:
    server = WebServer(page)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/rocketmq/nsaddr"
        yield server
        nursery.cancel_scope.cancel()


@contextmanager
def page_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Serves the text; yields its URL and the paths that were requested."""
    paths: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr", paths
        finally:
            server.shutdown()
            thread.join()
