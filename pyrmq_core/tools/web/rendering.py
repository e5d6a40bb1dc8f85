"""Renders pages from templates, which escape all values and share the formats of numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context, select_autoescape
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import RocketMQError
from pyrmq_core.tools.web.languages import LANGUAGES, Language, language_of
from pyrmq_core.tools.web.zones import OFFERED, Zone, is_zone_open, path_of, zone_of

HERE: Final = Path(__file__).parent
TEMPLATES: Final = HERE / "templates"


@pass_context
def _when(context: Context, moment: datetime | int | None, *, seconds: bool = False) -> str:
    """Formats a time, as `datetime` or ms since 1970, in the page's zone with its offset, and in UTC."""
    if moment is None:
        return ""
    if isinstance(moment, datetime):
        at = moment.astimezone(UTC)
    else:
        try:
            at = datetime.fromtimestamp(moment / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return f"{moment} ms since 1970"
    precision = "seconds" if seconds else "milliseconds"
    zone: Zone = context["zone"]
    utc, shown = (time.isoformat(" ", precision).replace("+00:00", "Z") for time in (at, zone.local(at)))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(utc.replace(" ", "T"), utc, shown)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def _share(value: float | None, most: float) -> str:
    """Returns the CSS classes of a figure. They draw a bar behind it, as long as the figure's share of `most`."""
    steps = 0 if not value or most <= 0 else max(1, round(20 * min(1.0, value / most)))
    return f"n s s{steps}" if steps > 0 else "n"


def _counted(value: int, thing: str) -> Text:
    return Text(f"{{number}} {thing}{'' if value == 1 else 's'}", number=_number(value))


@pass_context
def _said(context: Context, text: str, /, **values: object) -> Markup:
    language: Language = context["language"]
    return language.html(text, **values)


@pass_context
def _finalized(context: Context, value: object) -> object:
    if isinstance(value, RocketMQError):
        value = str(value)
    return _said(context, value) if isinstance(value, Text) else value


def _size(number_of_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number_of_bytes < 1024:
            return f"{_number(round(number_of_bytes, 1) if unit != 'B' else int(number_of_bytes))} {unit}"
        number_of_bytes /= 1024
    return f"{_number(round(number_of_bytes, 1))} TiB"


def link(path: str, **parameters: object) -> str:
    """Returns a path with its query. Parameters that are None or empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


class Pages:
    """The HTML templates of one page server. `shared` are the values that every page may show, by name."""

    def __init__(self, **shared: object) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalized,
        )
        self._templates.filters.update(when=_when, number=_number, share=_share, counted=_counted, size=_size)
        self._templates.globals.update({"link": link, "_": _said, "languages": LANGUAGES, **shared})

    def page(self, request: Request, template: str, values: Mapping[str, Any], status: int) -> HTMLResponse:
        """Renders a template with the viewer's time zone and language."""
        zone = zone_of(request)
        zones = OFFERED if zone.name in OFFERED else (*OFFERED, zone.name)
        shared = {"zone": zone, "zones": zones, "is_zone_open": is_zone_open(request)}
        shared |= {"language": language_of(request), "path": path_of(request)}
        shared |= {name: request.query_params.get(name, "").strip() for name in ("filter", "sort")}
        text = self._templates.get_template(template).render(**values, **shared)
        return HTMLResponse(text.encode(errors="replace"), status)
