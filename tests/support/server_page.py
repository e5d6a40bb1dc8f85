"""The generated tables of the servers' pages: `python -m tests.support.server_page` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pyrmq_core.protocol.framing.codes import REQUEST_NAMES
from pyrmq_core.servers.broker.processors.administration.broker_settings import CHANGEABLE
from pyrmq_core.servers.nameserver.handlers import HANDLERS
from tests.support.broker_codes import filled, refused_codes, served_codes

DOCS: Final = Path(__file__).parent.parent.parent / "docs"
NAMESERVER: Final = DOCS / "nameserver.md"
BROKER: Final = DOCS / "broker.md"
ACCESS: Final = DOCS / "access.md"
SETTINGS: Final = DOCS / "settings.md"


def nameserver_codes() -> str:
    """Returns every request that the NameServer answers, by its code."""
    return filled(f"{int(code)} {REQUEST_NAMES[code]}" for code in sorted(HANDLERS))


def changeable_settings() -> str:
    """Returns the settings that may change while a broker runs."""
    return filled(f"`{name}`" for name in sorted(CHANGEABLE, key=str.lower))


TABLES: Final[Mapping[Path, Mapping[str, Callable[[], str]]]] = {
    NAMESERVER: {"codes of the NameServer": nameserver_codes},
    BROKER: {
        "codes of the broker": served_codes,
        "codes that the broker refuses": refused_codes,
    },
    SETTINGS: {
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
