"""The tables of docs/servers.md that the code makes: `python -m tests.support.server_page` writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pyrmq_core.nameserver.handlers import HANDLERS
from pyrmq_core.protocol.codes import REQUEST_NAMES

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "servers.md"
_NAMESERVER: Final = re.compile(r"(<!-- codes of the NameServer:[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def nameserver_codes() -> str:
    """Every request code that the NameServer answers, a row each."""
    rows = [f"| {int(code)} | {REQUEST_NAMES[code]} | {HANDLERS[code].about} |\n" for code in sorted(HANDLERS)]
    return "".join(("| code | request | what it does or answers |\n|---|---|---|\n", *rows))


def written(page: str) -> str:
    """The page with its tables as they are now."""
    text, count = _NAMESERVER.subn(lambda found: found[1] + nameserver_codes() + found[2], page)
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for the codes of the NameServer, 1 is wanted")
    return text


def main() -> None:
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
