"""Ages as people write them, such as `90s`, `15m`, `1h`, `2d`. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

# The units of ages with their seconds, the largest first.
UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
AGE: Final = re.compile(r"([0-9]{1,9})([dhms])")


def time_before(now: datetime, text: str) -> datetime | None:
    """Returns `now` minus an age, or None if the text is not an age. Raises `OverflowError` before the year 1."""
    if (match := AGE.fullmatch(text)) is None:
        return None
    return now - timedelta(seconds=int(match[1]) * dict(UNITS)[match[2]])
