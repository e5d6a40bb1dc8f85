"""A short text over HTTP: valid answers, and the bounds of time and size."""

from __future__ import annotations

import pytest
import trio

from pyrmq_core.errors import InvalidArgument, NetworkError
from pyrmq_core.network.http_get import MAX_TEXT_BYTES, check_url, fetch_text
from tests.support.web import Page, web_server


async def test_a_text_is_fetched() -> None:
    async with web_server(Page(b"10.0.0.1:9876;10.0.0.2:9876\r\n")) as server:
        assert await fetch_text(server.url, timeout=60) == "10.0.0.1:9876;10.0.0.2:9876\r\n"
        assert server.paths == ["/rocketmq/nsaddr"]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Page(b"gone", status="404 Not Found"), "it answered 404 Not Found"),
        (Page(b"", status="302 Found", headers="Location: http://127.0.0.1:1/\r\n"), "it answered 302 Found"),
        (Page(b"x", status="500 Oops"), "it answered 500"),
        (Page(b"x" * (MAX_TEXT_BYTES + 1)), f"more than {MAX_TEXT_BYTES} bytes"),
        (Page(b"", raw=b"not HTTP at all\r\n\r\n"), "failed: "),
        (Page(b"", raw=b""), "failed: "),
    ],
)
async def test_other_answers_are_failures(page: Page, reason: str) -> None:
    async with web_server(page) as server:
        with pytest.raises(NetworkError) as caught:
            await fetch_text(server.url, timeout=60)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"GET {server.url} failed")


async def test_a_silent_server_costs_its_time_only() -> None:
    async with web_server(Page(b"", silent=True)) as server:
        with trio.fail_after(30), pytest.raises(NetworkError, match=r"no answer within 0.3 s|timed out"):
            await fetch_text(server.url, timeout=0.3)


async def test_no_server_there() -> None:
    with pytest.raises(NetworkError, match="refused"):
        await fetch_text("http://127.0.0.1:1/list", timeout=60)


async def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with web_server(Page(b"a:1")) as server:
        assert await fetch_text(server.url, timeout=60) == "a:1"


@pytest.mark.parametrize("url", ["", "host:80/list", "file:///etc/passwd", "ftp://host/list", "http://", "http:///x"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is no URL to fetch"):
        check_url(url)
