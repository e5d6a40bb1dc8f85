"""The samples of one curve, as the script of a page draws them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.web.history import Curve
from pyrmq_core.web.look_ups import LookUps
from pyrmq_core.web.pages.page import needed

KINDS: Final = ("lag", "cluster", "topic")


def curve_data(request: Request, look_ups: LookUps) -> dict[str, object]:
    """Returns the times and the figures by line; no broker is queried for them."""
    kind = needed(request, "kind")
    if kind not in KINDS:
        raise InvalidArgument(f"kind={kind!r} is none of {', '.join(KINDS)}")
    seconds, lines = look_ups.history.columns(Curve(kind, needed(request, "name")))
    return {"seconds": seconds, "lines": lines}
