"""Static files by the hash of their content, and compressed pages."""

from __future__ import annotations

import gzip
import re

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pyrmq_core.tools.web.static_files import STATIC, StaticFiles, accepts_gzip, compress_page
from tests.tools.web.serving import Served, served


def request(coding: str) -> Request:
    return Request({"type": "http", "method": "GET", "path": "/", "headers": [(b"accept-encoding", coding.encode())]})


@pytest.mark.parametrize(
    ("coding", "accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("", False),
        ("xgzip", False),
    ],
)
def test_what_a_browser_accepts(coding: str, accepted: bool) -> None:
    assert accepts_gzip(request(coding)) is accepted


def test_a_page_with_the_secret_is_not_compressed() -> None:
    for text, is_compressed in (("a " * 2000, True), ("a " * 2000 + "token", False), ("short", False)):
        page = compress_page(HTMLResponse(text), request("gzip"), "token")
        assert ("content-encoding" in page.headers) is is_compressed
        body = bytes(page.body)
        assert (gzip.decompress(body) if is_compressed else body) == text.encode()
        assert page.headers["content-length"] == str(len(body))


async def loaded(page: Served, path: str) -> list[str]:
    """Returns the static files that a page names in its head."""
    return re.findall(r'<(?:link|script)[^>]* (?:href|src)="(/static/[^"]*)"', (await page.get(path)).text)


async def test_static_files_are_kept_by_browsers() -> None:
    files = StaticFiles()
    async with served(brokers=1) as page:
        names = await loaded(page, "/topics")
        assert names == [files.address("page.css"), files.address("page.js")]
        for name in STATIC.iterdir():
            answer = await page.get(files.address(name.name))
            assert answer.content == name.read_bytes()
            assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept-Encoding")
            assert answer.headers["cache-control"].endswith("immutable")
            plain = await page.http.get(files.address(name.name), headers={"Accept-Encoding": "identity"})
            assert ("content-encoding" in plain.headers, plain.content) == (False, answer.content)
        assert (await page.get("/static/page.css")).status_code == 404
        data = await page.get("/topics")
        assert (data.headers["cache-control"], data.headers["content-encoding"]) == ("no-store", "gzip")
