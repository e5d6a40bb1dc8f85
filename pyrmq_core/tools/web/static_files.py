"""The static files of the page, each with a hash in its name, and the compression of responses."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

STATIC: Final = Path(__file__).parent / "static"
KINDS: Final[Mapping[str, str]] = {".css": "text/css", ".js": "text/javascript", ".txt": "text/plain"}
HASH_CHARACTERS: Final = 16
# The hash in a name changes with the content, so that browsers need not ask again.
CACHE: Final = "public, max-age=31536000, immutable"
MIN_BYTES: Final = 1024
PAGE_LEVEL: Final = 5


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    compressed: bytes
    kind: str


class StaticFiles:
    """The files of the folder `static`, read and compressed once."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._addresses: dict[str, str] = {}
        for path in sorted(STATIC.iterdir()):
            body = path.read_bytes()
            name = f"{path.stem}.{hashlib.sha256(body).hexdigest()[:HASH_CHARACTERS]}{path.suffix}"
            self._files[name] = _File(body, gzip.compress(body, mtime=0), KINDS[path.suffix])
            self._addresses[path.name] = f"/static/{name}"

    def address(self, name: str) -> str:
        return self._addresses[name]

    async def answer(self, request: Request) -> Response:
        """Returns the file that the request's path names. Raises `HTTPException` 404 for any other name."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        headers = {"Cache-Control": CACHE, "Vary": "Accept-Encoding"}
        if not accepts_gzip(request):
            return Response(file.body, headers=headers, media_type=file.kind)
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.kind)


def accepts_gzip(request: Request) -> bool:
    for coding in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() == "gzip":
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight)
    return False


def compress_page(page: Response, request: Request, secret: str) -> Response:
    """Compresses a page in place if the browser accepts that.

    A page with the secret is not compressed: if another site chose some of its text, the compressed length would reveal
    characters of the secret.
    """
    page.headers["Vary"] = "Accept-Encoding"
    body = bytes(page.body)
    if len(body) >= MIN_BYTES and accepts_gzip(request) and secret.encode() not in body:
        page.body = gzip.compress(body, PAGE_LEVEL, mtime=0)
        page.headers["Content-Encoding"] = "gzip"
        page.headers["Content-Length"] = str(len(page.body))
    return page
