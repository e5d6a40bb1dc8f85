"""The web application: the routes of all pages, and the pages for errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from pyrmq_core.client.texts import Text, text_of
from pyrmq_core.client.unpacking import in_thread
from pyrmq_core.errors import InvalidArgument, NoRoute, Outcome, ResponseError, RocketMQError, SendFailed
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.tools.web.bodies import Receive
from pyrmq_core.tools.web.body_text import file_name
from pyrmq_core.tools.web.change_log import ChangeNotLogged, Viewer
from pyrmq_core.tools.web.changes import PREPARED_BY, Changes
from pyrmq_core.tools.web.guards import BUSY, FormToken, RequestSlots, Scope, Send
from pyrmq_core.tools.web.hit_files import WRITERS
from pyrmq_core.tools.web.languages import COOKIE as LANGUAGE_COOKIE
from pyrmq_core.tools.web.languages import LANGUAGES
from pyrmq_core.tools.web.look_up_queue import TooManyLookUps
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.pages.groups import group_page, groups_page, stack_page
from pyrmq_core.tools.web.pages.messages import message_page, messages_page, missing, place_of, tail_page, wanted_of
from pyrmq_core.tools.web.pages.page import Shown, bounded, needed, one_of, query
from pyrmq_core.tools.web.pages.settings import group_settings_page, servers_page, topic_settings_page
from pyrmq_core.tools.web.pages.single_pages import (
    cluster_page,
    consume_page,
    curve_data,
    dead_letters_page,
    delete_page,
    producers_page,
    reset_page,
    send_page,
)
from pyrmq_core.tools.web.pages.topics import topic_page, topics_page
from pyrmq_core.tools.web.rendering import Pages
from pyrmq_core.tools.web.static_files import StaticFiles, compress_page
from pyrmq_core.tools.web.zones import COOKIE, COOKIE_SECONDS, UTC_ZONE, form_zone, local_path

PageOf = Callable[[Request, LookUps], Awaitable[Shown]]
PageOfShown = Callable[[Request, Shown], Response]

PAGES: Final[Mapping[str, PageOf]] = {
    "/": cluster_page,
    "/topics": topics_page,
    "/topic": topic_page,
    "/groups": groups_page,
    "/group": group_page,
    "/stack": stack_page,
    "/messages": messages_page,
    "/message": message_page,
    "/tail": tail_page,
    "/producers": producers_page,
    "/dead-letters": dead_letters_page,
    "/topic-settings": topic_settings_page,
    "/group-settings": group_settings_page,
    "/servers": servers_page,
}
FORMS: Final[Mapping[str, PageOf]] = {
    "/send": send_page,
    "/reset": reset_page,
    "/consume": consume_page,
    "/delete": delete_page,
}
CONFIRMED: Final = "/confirmed"
NAVIGATION: Final = (
    ("/", Text("Cluster")),
    ("/topics", Text("Topics")),
    ("/groups", Text("Groups")),
    ("/messages", Text("Messages")),
    ("/producers", Text("Producers")),
    ("/dead-letters", Text("Dead letters")),
)

LOG: Final = ("/changes", Text("Changes"))
MAX_VIEWER_CHARACTERS: Final = 200

OUTCOMES: Final = {
    Outcome.NOT_STORED: Text("The message is not stored"),
    Outcome.PERHAPS_STORED: Text("The message is perhaps stored"),
    Outcome.STORED: Text("The message is stored"),
}

# The most fields of a form: each marked dead letter is one, and a page lists up to 64.
MAX_FIELDS: Final = 128
# The size of the pieces in which forms are decoded and downloads are sent, so that other tasks can run in between.
SLICE_BYTES: Final = 64 * 1024
# The most downloads at a time, of up to 16 MiB each.
MAX_DOWNLOADS: Final = 16


def application(
    look_ups: LookUps,
    pages: Pages,
    changes: Changes | None,
    token: FormToken,
    files: StaticFiles,
    viewer_header: str | None = None,
) -> Starlette:
    """Returns the web application, which the caller wraps in `Guards`.

    `changes` is None if changes are not allowed. `viewer_header` is the HTTP header with the viewer's name for the log.
    """

    def showing(page_of: PageOf) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            return page(request, await page_of(request, look_ups.of_viewer(_address(request))))

        return show

    def page(request: Request, shown: Shown, status: int = 200) -> Response:
        return compress_page(pages.page(request, shown.template, shown.values, status), request, token.text)

    async def curve(request: Request) -> Response:
        return JSONResponse(curve_data(request, look_ups))

    async def failed(request: Request, error: Exception) -> Response:
        status, heading, text = described(error)
        if request.url.path.startswith("/data/"):
            return JSONResponse({"error": text}, status)
        values = {"heading": heading, "text": text, "posted": request.method == "POST"}
        return page(request, Shown("error.html", values), status)

    shown_pages = PAGES if changes is None else {**PAGES, **FORMS}
    return Starlette(
        routes=[
            *(Route(path, showing(page_of), methods=["GET"]) for path, page_of in shown_pages.items()),
            Route("/data/curve", curve, methods=["GET"]),
            *download_routes(look_ups),
            Route("/zone", choose_zone, methods=["GET"]),
            Route("/language", choose_language, methods=["GET"]),
            *(() if changes is None else changing_routes(changes, page, token, viewer_header)),
            Route("/static/{name}", files.answer, methods=["GET"]),
        ],
        exception_handlers={RocketMQError: failed, TooManyLookUps: failed, HTTPException: failed},
    )


def download_routes(look_ups: LookUps) -> list[Route]:
    downloads = RequestSlots(MAX_DOWNLOADS)

    async def body(request: Request) -> Response:
        queue, offset = place_of(request)
        message = await look_ups.of_viewer(_address(request)).at(queue, offset)
        if message is None:
            raise missing(queue, offset)
        name = file_name(queue.topic, queue.broker_name, queue.queue_id, offset)
        masked = await in_thread(look_ups.masks.of, message)
        return Download(masked.body, name, downloads, _address(request))

    async def hits(request: Request) -> Response:
        wanted, form = wanted_of(request), query(request, "as")
        one_of(request.query_params, "as", WRITERS)
        file = await look_ups.of_viewer(_address(request)).hits(wanted, form)
        return Download(file, file_name(needed(request, "topic"), suffix=form), downloads, _address(request))

    return [Route("/body", body, methods=["GET"]), Route("/hits", hits, methods=["GET"])]


def changing_routes(changes: Changes, page: PageOfShown, token: FormToken, viewer_header: str | None) -> list[Route]:
    """Returns the routes that ask to confirm a change, make a confirmed change, and list the changes made."""

    async def change(request: Request) -> Response:
        form = await _form(request, token)
        path = request.url.path
        name = request.headers.get(viewer_header, "")[:MAX_VIEWER_CHARACTERS] if viewer_header else ""
        viewer = Viewer(name, _address(request))
        return page(
            request, await (changes.perform(form, viewer) if path == CONFIRMED else changes.prepare(path, form))
        )

    async def log(request: Request) -> Response:
        return page(request, Shown("changes.html", {"entries": changes.log.entries, "run": changes.resends.latest}))

    posted = [Route(path, change, methods=["POST"]) for path in (*PREPARED_BY, CONFIRMED)]
    return [*posted, Route(LOG[0], log, methods=["GET"])]


async def choose_zone(request: Request) -> Response:
    return _chosen(request, COOKIE, form_zone(query(request, "zone"), UTC_ZONE).name)


async def choose_language(request: Request) -> Response:
    return _chosen(request, LANGUAGE_COOKIE, one_of(request.query_params, "language", LANGUAGES).code)


def _chosen(request: Request, cookie: str, value: str) -> Response:
    answer = RedirectResponse(local_path(request.query_params.get("back", "")), 303)
    answer.set_cookie(cookie, value, max_age=COOKIE_SECONDS, httponly=True, samesite="lax")
    return answer


class Download(Response):
    """A download, which the browser saves and does not show: a message's body, or the matches of a search.

    At most `MAX_DOWNLOADS` are sent at a time.
    """

    def __init__(self, body: bytes, name: str, slots: RequestSlots, address: str) -> None:
        disposition = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(len(body))}
        super().__init__(None, headers=disposition, media_type="application/octet-stream")
        self._bytes, self._slots, self._address = body, slots, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot = self._slots.take(self._address)
        if slot is None:
            await PlainTextResponse(BUSY, 503)(scope, receive, send)
            return
        try:
            with slot.scope:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                for start in range(0, len(self._bytes), SLICE_BYTES):
                    piece = self._bytes[start : start + SLICE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._slots.leave(slot)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _form(request: Request, token: FormToken) -> dict[str, str]:
    # A form without the page's token is refused before its fields are read.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, Text("A form of this page is application/x-www-form-urlencoded."))
    sent = await request.body()
    if not token.matches(raw_field(sent, b"token", len(token.text) + 1)):
        raise HTTPException(403, Text("The form is not from this page as it runs now; load the page again."))
    fields = await read_fields(sent)
    return {name: value if name == "body" else bounded(name, value) for name, value in fields.items()}


def described(error: Exception) -> tuple[int, str, str]:
    text = text_of(error)
    match error:
        case HTTPException(status_code=404):
            return 404, Text("No such page"), Text("There is no page at this address.")
        case HTTPException():
            return error.status_code, Text("Refused"), error.detail
        case TooManyLookUps():
            return 429, Text("Busy"), Text("All viewers together ask for too much at once; try again in a few seconds.")
        case ChangeNotLogged():
            return 503, Text("Nothing is changed"), text
        case InvalidArgument():
            return 400, Text("Not possible"), text
        case NoRoute():
            return 404, Text("Not there"), text
        case ResponseError(code=ResponseCode.NO_PERMISSION):  # the refusal of access control in 4.9 and 5.x
            refused = Text("The credentials of this page do not permit it: {error}", error=text)
            return 403, Text("Not permitted"), refused
        case SendFailed():
            return 502, OUTCOMES[error.outcome], text
        case ResponseError():
            return 502, Text("The broker refused"), text
        case _:
            return 502, Text("The cluster did not answer"), text


def raw_field(form: bytes, name: bytes, most: int) -> str:
    _, separator, after = (b"&" + form).partition(b"&" + name + b"=")
    return after[:most].partition(b"&")[0].decode("latin-1") if separator else ""


async def read_fields(form: bytes) -> dict[str, str]:
    """Decodes a URL-encoded form. Raises `InvalidArgument` for more than `MAX_FIELDS` fields."""
    fields = form.split(b"&", MAX_FIELDS)
    if len(fields) > MAX_FIELDS:
        raise InvalidArgument(Text("the form has more than {most} fields", most=MAX_FIELDS))
    split = [field.partition(b"=") for field in fields]
    return {await _decoded(name): await _decoded(value) for name, _, value in split}


async def _decoded(sent: bytes) -> str:
    pieces, start = [], 0
    while start < len(sent):
        end = start + SLICE_BYTES
        cut = sent.rfind(b"%", end - 2, end)  # a percent sign must not be separated from its digits
        end = end if cut < 0 else cut
        pieces.append(unquote_to_bytes(sent[start:end].replace(b"+", b" ")))
        start = end
        await trio.lowlevel.checkpoint()
    return b"".join(pieces).decode("utf-8", "replace")
