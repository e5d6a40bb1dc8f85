"""The time zone that a viewer chose, in which pages show times and read them from forms.

The choice is a cookie, so that no script is needed. A zone is a name of the IANA database, or an offset from UTC for
hosts without that database.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from starlette.requests import Request

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.tools.search.ages import time_before
from pyrmq_core.tools.web.shared_answers import FRESH_SECONDS

COOKIE: Final = "zone"
COOKIE_SECONDS: Final = 365 * 24 * 3600
MAX_BACK_CHARACTERS: Final = 1024
OFFSET: Final = re.compile(r"UTC([+-])(\d\d):([0-5]\d)", re.ASCII)
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
MAX_NAME_CHARACTERS: Final = 64
# The zones that every page offers. page.js adds the browser's own.
OFFERED: Final = (
    *(f"UTC-{hours:02}:00" for hours in range(11, 0, -1)),
    "UTC",
    *("UTC+01:00", "UTC+02:00", "UTC+03:00", "UTC+03:30", "UTC+04:00", "UTC+05:00", "UTC+05:30", "UTC+05:45"),
    *("UTC+06:00", "UTC+07:00", "UTC+08:00", "UTC+09:00", "UTC+09:30", "UTC+10:00", "UTC+11:00", "UTC+12:00"),
    "UTC+13:00",
)


@dataclass(frozen=True, slots=True)
class Zone:
    name: str
    info: tzinfo

    def read(self, text: str, name: str) -> datetime | None:
        """Parses the time in a form's field, or returns None for an empty text.

        A time without an offset is in this zone. An age such as `1h` is subtracted from the current time, which is
        rounded down to `FRESH_SECONDS` so that viewers share answers. Raises `InvalidArgument`, with the field's
        `name`, for any other text.
        """
        if not text:
            return None
        try:
            now = datetime.fromtimestamp(time.time() // FRESH_SECONDS * FRESH_SECONDS, UTC)
            if (moment := time_before(now, text)) is not None:
                return moment
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo is not None else moment.replace(tzinfo=self.info)).astimezone(UTC)
        except (ValueError, OverflowError):
            values = {"name": name, "text": text, "zone": self.name}
            raise InvalidArgument(
                Text(
                    "{name}={text!r} is no time; write 2026-01-31T12:00 ({zone}) or with +02:00, "
                    "or an age as 15m, 1h, 2d",
                    **values,
                )
            ) from None

    def write(self, moment: datetime | None) -> str:
        if moment is None:
            return ""
        return self.local(moment).isoformat(timespec="auto" if moment.microsecond else "seconds")

    def local(self, moment: datetime) -> datetime:
        """Converts a time to this zone, or to UTC if the date would be beyond the calendar."""
        try:
            return moment.astimezone(self.info)
        except OverflowError:
            return moment.astimezone(UTC)


UTC_ZONE: Final = Zone("UTC", UTC)


def zone_named(name: str) -> Zone | None:
    """Returns the zone with this name, or None if this host does not know it."""
    if name == "UTC":
        return UTC_ZONE
    if offset := OFFSET.fullmatch(name):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return Zone(name, timezone(ahead if offset[1] == "+" else -ahead)) if ahead <= timedelta(hours=14) else None
    if len(name) > MAX_NAME_CHARACTERS or not NAME.fullmatch(name):
        return None
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        return None


def zone_of(request: Request) -> Zone:
    return zone_named(request.cookies.get(COOKIE, "")) or UTC_ZONE


def is_zone_open(request: Request) -> bool:
    """Returns whether page.js may set the browser's zone: the viewer chose none, and the page can be reloaded."""
    return request.method == "GET" and COOKIE not in request.cookies


def form_zone(name: str, otherwise: Zone) -> Zone:
    """Returns the zone in a form's field, or `otherwise` if it is empty. Raises `InvalidArgument` if it is unknown."""
    zone = zone_named(name) if name else otherwise
    if zone is None:
        text = Text("zone={zone!r} is no zone that this machine knows; take UTC+08:00", zone=name[:MAX_NAME_CHARACTERS])
        raise InvalidArgument(text)
    return zone


def local_path(text: str) -> str:
    """Returns a path of this server to return to, or `/` if the text is not one."""
    is_local = text[:1] == "/" and text[1:2] not in ("/", "\\") and text.isprintable() and text.isascii()
    return text if is_local and len(text) <= MAX_BACK_CHARACTERS else "/"


def path_of(request: Request) -> str:
    if request.method != "GET":
        return "/"
    query = request.url.query
    return local_path(f"{request.url.path}?{query}" if query else request.url.path)
