"""`Guards`: the outermost layer of the page, which refuses foreign hosts, slow peers and forged changes.

A site that a user visits can make the browser send requests to this page. Such a request names another host (DNS
rebinding) or another origin, or it lacks the token that only this page's own forms have.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import trio
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from pyrmq_core.network import open_owned_nursery
from pyrmq_core.tools.web.bodies import MAX_BODY_BYTES, AsgiMessage, Bodies, BodyRefused, PeerGone, Receive

Scope = AsgiMessage
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
ANSWER_WITHIN_SECONDS: Final = 30.0
BUSY: Final = "too many requests are under way; try again in a moment\n"
LATE: Final = f"the answer was not ready within {ANSWER_WITHIN_SECONDS:g} seconds\n"
SAFE_METHODS: Final = ("GET", "HEAD")
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer", browsers would send "Origin: null" even with this page's own forms, which are then refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

MAX_REQUESTS: Final = 64


class FormToken:
    """The random secret that this server puts in each of its forms. Forms forged by another site (CSRF) lack it."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(32)

    def matches(self, text: object) -> bool:
        """Returns whether a text is the token. It compares in constant time, so that timing reveals nothing."""
        return isinstance(text, str) and hmac.compare_digest(text.encode(errors="replace"), self.text.encode())


class Guards:
    """The outermost ASGI layer: it refuses requests for other hosts than `hosts`, and changes from other sites.

    Without `allow_changes` it refuses all changes. The number of requests in progress is limited (`RequestSlots`). A
    request counts from the end of its body to the start of its response, so that slow peers do not count. It is
    answered with status 503 if the limit is reached, or if its response does not start within `ANSWER_WITHIN_SECONDS`.
    """

    def __init__(self, app: App, hosts: Iterable[str], *, allow_changes: bool) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._allow_changes = allow_changes
        self._bodies = Bodies()
        self._slots = RequestSlots()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            body = await self._bodies.read(receive)
        except PeerGone:
            return
        except BodyRefused as error:
            await PlainTextResponse(f"{error}\n", error.status)(scope, receive, send)
            return
        try:
            await self._answer(scope, body.receive, send)
        finally:
            self._bodies.release(body)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot = self._slots.take((scope.get("client") or ("",))[0])
        if slot is None:
            await PlainTextResponse(BUSY, 503)(scope, receive, send)
            return

        is_answered = has_left = False

        async def send_without_slot(message: AsgiMessage) -> None:
            # The request gives up its slot before the response is sent, since the peer may read slowly.
            if slot.scope.cancel_called:
                await trio.lowlevel.checkpoint()  # the request ends here, before any part of a response is sent
            nonlocal is_answered
            is_answered = True
            slot.scope.deadline = math.inf
            self._slots.leave(slot)
            await send(message)

        async def watch() -> None:
            # Ends the request if the peer disconnects.
            nonlocal has_left
            while (await receive()).get("more_body", False):
                pass
            if (await receive())["type"] == "http.disconnect" and not is_answered:
                has_left = True
                slot.scope.cancel()

        slot.scope.deadline = trio.current_time() + ANSWER_WITHIN_SECONDS
        try:
            with slot.scope:
                if scope["method"] in SAFE_METHODS:
                    async with open_owned_nursery() as nursery:
                        nursery.start_soon(watch)
                        await self._app(scope, _no_body, send_without_slot)
                else:
                    await self._app(scope, receive, send_without_slot)
        finally:
            self._slots.leave(slot)
        if slot.scope.cancelled_caught and not has_left:
            late = trio.current_time() >= slot.scope.deadline
            await PlainTextResponse(LATE if late else BUSY, 503)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            named = ", ".join(sorted(self._hosts))
            text = f"this page is served for {named} alone, not for {host!r}; name others with --allow-host\n"
            return PlainTextResponse(text, 400)
        if scope["method"] in SAFE_METHODS:
            return None
        if not self._allow_changes:
            return PlainTextResponse("this page changes nothing; start it with --allow-changes\n", 403)
        origin = headers.get("origin")
        foreign = origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}")
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("changes are taken from this page itself alone\n", 403)
        length = headers.get("content-length", "0")
        # The length is checked first: Python parses no number of more than 4,300 digits.
        if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > MAX_BODY_BYTES:
            return PlainTextResponse(f"the request is larger than {MAX_BODY_BYTES} bytes\n", 413)
        return None


async def _no_body() -> AsgiMessage:
    return {"type": "http.request", "body": b"", "more_body": False}


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers


@dataclass(eq=False, slots=True)
class RequestSlot:
    """A request in progress from the IP address `host`. `scope` is cancelled if another address gets its slot."""

    host: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class RequestSlots:
    """The slots of the requests in progress, at most `most` or `MAX_REQUESTS`, the oldest first.

    A single address, such as a proxy's, may have all slots. When all are taken, a new request may replace the oldest
    request of the address with the most slots, if its own address has at least two slots fewer.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = MAX_REQUESTS if most is None else most
        self._taken: dict[RequestSlot, None] = {}

    def take(self, host: str) -> RequestSlot | None:
        """Returns a slot for a request from an IP address, or None if all are taken and no request may be replaced."""
        if len(self._taken) >= self._most:
            counts = Counter(slot.host for slot in self._taken)
            greediest, most = counts.most_common(1)[0]
            if most <= counts[host] + 1:
                return None
            oldest = next(slot for slot in self._taken if slot.host == greediest)
            self.leave(oldest)
            oldest.scope.cancel()
        slot = RequestSlot(host)
        self._taken[slot] = None
        return slot

    def leave(self, slot: RequestSlot) -> None:
        self._taken.pop(slot, None)
