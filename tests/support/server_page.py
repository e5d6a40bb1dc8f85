"""The generated tables of the servers' pages: `python -m tests.support.server_page` writes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from pyrmq_core.protocol.framing.codes import REQUEST_NAMES
from pyrmq_core.servers.broker.processors.administration.broker_settings import CHANGEABLE
from pyrmq_core.servers.broker.settings.setting_rules import REFUSED, WITHOUT_EFFECT
from pyrmq_core.servers.nameserver.handlers import HANDLERS
from tests.support.broker_codes import refused_codes, served_codes

DOCS: Final = Path(__file__).parent.parent.parent / "docs"
NAMESERVER: Final = DOCS / "nameserver.md"
BROKER: Final = DOCS / "broker.md"
ACCESS: Final = DOCS / "access.md"
SETTINGS: Final = DOCS / "settings.md"


def nameserver_codes() -> str:
    """Returns a row for every request code that the NameServer answers."""
    rows = [f"| {int(code)} | {REQUEST_NAMES[code]} | {HANDLERS[code].about} |\n" for code in sorted(HANDLERS)]
    return "".join(("| code | request | what it does or answers |\n|---|---|---|\n", *rows))


def refused_settings() -> str:
    """Returns a row for each reason why a broker refuses settings of RocketMQ."""
    rows = [f"| {_quoted(row.names)} | {_values(row.harmless)} | {row.why} |\n" for row in REFUSED]
    return "".join(("| setting | but for | why, and what to do |\n|---|---|---|\n", *rows))


def settings_without_effect() -> str:
    """Returns a row for each reason why a broker accepts settings of RocketMQ without effect."""
    rows = [f"| {row.why} | {_quoted(row.names)} |\n" for row in WITHOUT_EFFECT]
    return "".join(("| why they harm nothing | settings |\n|---|---|\n", *rows))


def changeable_settings() -> str:
    """Returns the settings that may change while a broker runs."""
    listed = f"{_quoted(sorted(CHANGEABLE, key=str.lower))}."
    return textwrap.fill(listed, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _values(harmless: Iterable[str]) -> str:
    return _quoted(value for value in harmless if value) or "nothing"


TABLES: Final[Mapping[Path, Mapping[str, Callable[[], str]]]] = {
    NAMESERVER: {"codes of the NameServer": nameserver_codes},
    BROKER: {
        "codes of the broker": served_codes,
        "codes that the broker refuses": refused_codes,
    },
    SETTINGS: {
        "settings that a broker refuses": refused_settings,
        "settings without effect on a broker": settings_without_effect,
        "settings that change while a broker runs": changeable_settings,
    },
}


def written(page: Path) -> str:
    """Returns the page's text with its tables as they are now."""
    text = page.read_text("utf-8")
    for name, table in TABLES[page].items():
        places = re.findall(rf"<!-- {name}:[^\n]*-->\n.*?<!-- end -->", text, re.DOTALL)
        if len(places) != 1:
            raise ValueError(f"{page} has {len(places)} places for the {name}, 1 is wanted")
        head = places[0].partition("\n")[0]
        text = text.replace(places[0], f"{head}\n{table()}<!-- end -->")
    return text


def main() -> None:
    for page in TABLES:
        page.write_text(written(page), "utf-8")


if __name__ == "__main__":
    main()
