"""The page's outer wall: hosts, origins, tokens, sizes and numbers of requests."""

from __future__ import annotations

import httpx
import pytest
import trio
import trio.testing

from pyrmq_core.tools.web import bodies, guards
from pyrmq_core.tools.web.bodies import MAX_BODY_BYTES, AsgiMessage, Receive
from pyrmq_core.tools.web.guards import App, FormToken, Guards, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "::1", "Board.Example")


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the request's body whole, and answers how long it was."""
    length = 0
    while (message := await receive())["type"] == "http.request":
        length += len(message.get("body", b""))
        if not message.get("more_body", False):
            break
    else:
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


def client(*, allow_changes: bool = True, app: App = answers) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(Guards(app, HOSTS, allow_changes=allow_changes))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", timeout=5)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("[::1]:8080", 200),
        ("board.example:80", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("", 400),
        ("[::1", 400),
        ("evil.example@127.0.0.1", 200),  # the user part names no host
    ],
)
async def test_hosts(host: str, status: int) -> None:
    async with client() as browser:
        answer = await browser.get("/", headers={"Host": host})
    assert answer.status_code == status
    assert (status == 200) or "--allow-host" in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8080"}, 200),
        ({"Origin": "http://127.0.0.1:8081"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Length": str(MAX_BODY_BYTES + 1)}, 413),
        ({"Content-Length": "-1"}, 413),
        ({"Content-Length": "9" * 5000}, 413),
    ],
)
async def test_changes_come_from_the_page_itself(headers: dict[str, str], status: int) -> None:
    async with client() as browser:
        assert (await browser.post("/", headers=headers)).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
async def test_nothing_changes_unless_it_is_allowed(method: str) -> None:
    async with client(allow_changes=False) as browser:
        answer = await browser.request(method, "/")
    assert answer.status_code == 403
    assert "--allow-changes" in answer.text


@pytest.mark.parametrize(("pieces", "read"), [(10, b"1000"), (11, b"the request is larger than 1000 bytes\n")])
async def test_a_body_without_a_length_is_bounded(pieces: int, read: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 1000)
    left = iter(range(pieces - 1, -1, -1))
    sent: list[bytes] = []

    async def receive() -> AsgiMessage:
        return {"type": "http.request", "body": b"x" * 100, "more_body": next(left) > 0}

    async def send(message: AsgiMessage) -> None:
        sent.append(message.get("body", b""))

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    await Guards(answers, HOSTS, allow_changes=True)(scope, receive, send)
    assert sent[1:] == [read]


async def test_every_answer_has_the_headers() -> None:
    async with client() as browser:
        for host in ("localhost", "evil.example"):
            answer = await browser.get("/", headers={"Host": host})
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"


async def test_requests_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MAX_REQUESTS", 3)
    held, statuses = trio.Event(), list[int]()

    async def holds(scope: Scope, receive: Receive, send: Send) -> None:
        await held.wait()
        await answers(scope, receive, send)

    async with client(app=holds) as browser:

        async def ask() -> None:
            statuses.append((await browser.get("/")).status_code)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert statuses == [503, 503]
            held.set()
    assert sorted(statuses) == [200, 200, 200, 503, 503]


async def test_a_peer_that_reads_nothing_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MAX_REQUESTS", 1)
    guarded = Guards(answers, HOSTS, allow_changes=True)
    statuses = list[int]()

    async def receive() -> AsgiMessage:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: AsgiMessage) -> None:
        statuses.append(message["status"])
        await trio.sleep_forever()

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(guarded, scope, receive, send)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert statuses == [200, 200, 200]


async def test_an_answer_that_never_comes(autojump_clock: trio.testing.MockClock) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    async with client(app=never) as browser:
        answer = await browser.get("/")
    assert (answer.status_code, answer.text) == (503, "the answer was not ready within 30 seconds\n")
    assert trio.current_time() == pytest.approx(guards.ANSWER_WITHIN_SECONDS)


async def test_many_requests_of_one_address_give_way_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MAX_REQUESTS", 3)
    statuses = list[tuple[str, int]]()

    async def holds(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["client"][0] == "10.0.0.1":
            await trio.sleep_forever()
        await answers(scope, receive, send)

    guarded = Guards(holds, HOSTS, allow_changes=True)

    async def ask(host: str) -> None:
        transport = httpx.ASGITransport(guarded, client=(host, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
            statuses.append((host, (await browser.get("/")).status_code))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask, "10.0.0.1")
        await trio.testing.wait_all_tasks_blocked()
        await ask("10.0.0.2")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sorted(statuses) == [("10.0.0.1", 503), ("10.0.0.2", 200)]


@pytest.mark.parametrize("text", ["", "x", None, 3, "é", "\ud800"])
def test_wrong_tokens(text: object) -> None:
    token = FormToken()
    assert not token.matches(text)
    assert token.matches(token.text)
    assert token.text != FormToken().text


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("x", False)]
)
def test_loopback(host: str, expected: bool) -> None:
    assert guards.is_loopback(host) is expected
