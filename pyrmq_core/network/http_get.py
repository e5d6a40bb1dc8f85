"""The download of a short text over HTTP, such as a list of NameServers, with limits of time and size."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, NetworkError

MAX_TEXT_BYTES: Final = 64 * 1024
HTTP_OK: Final = 200


def check_url(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"{url!r} is no URL to fetch; write http://host:port/path")


async def fetch_text(url: str, *, timeout: float) -> str:
    """Fetches a URL and returns the body of the response. `timeout` is in seconds.

    Raises `NetworkError` for a status other than 200, for a body above 64 KiB, and if no response arrives in time.
    Redirections are not followed and no proxy is used, as in Java (common/utils/HttpTinyClient.java).
    """
    with trio.move_on_after(timeout):
        return await trio.to_thread.run_sync(partial(_fetch, url, timeout), abandon_on_cancel=True)
    raise _failed(url, f"no answer within {timeout:g} s")


def _fetch(url: str, timeout: float) -> str:
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler())
    try:
        with opener.open(url, timeout=timeout) as answer:
            if answer.status != HTTP_OK:
                raise _failed(url, f"it answered {answer.status} {answer.reason}")
            body: bytes = answer.read(MAX_TEXT_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _failed(url, str(reason) or type(error).__name__) from error
    if len(body) > MAX_TEXT_BYTES:
        raise _failed(url, f"it answered with more than {MAX_TEXT_BYTES} bytes")
    return body.decode("utf-8", "replace")


def _failed(url: str, reason: str) -> NetworkError:
    return NetworkError(f"GET {url} failed: {reason}", address=url, request_left=True)
