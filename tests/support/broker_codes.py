"""The requests that a broker answers and refuses, for docs/broker.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields

from pyrmq_core.protocol.framing.codes import REQUEST_NAMES
from pyrmq_core.servers.broker.processors.table import FAMILIES, NOT_BUILT


def served_requests() -> frozenset[int]:
    families = [family(*(None for _ in fields(family))) for family in FAMILIES]
    return frozenset(code for family in families for code in family.handlers())


def served_codes() -> str:
    """Returns every request that the broker answers, by its code."""
    return filled(f"{int(code)} {REQUEST_NAMES[code]}" for code in sorted(served_requests()))


def filled(words: Iterable[str]) -> str:
    """Returns a list of words as a paragraph of a page."""
    return textwrap.fill(f"{', '.join(words)}.", 120, break_long_words=False, break_on_hyphens=False) + "\n"


def refused_codes() -> str:
    """Returns a row for each part that is not built, with the requests that need it."""
    return "".join(("| not built | requests that are answered 3 by name |\n|---|---|\n", *_refused_rows()))


def _refused_rows() -> Iterator[str]:
    for part in sorted(set(NOT_BUILT.values())):
        codes = sorted(code for code, needed in NOT_BUILT.items() if needed == part and code not in served_requests())
        if codes:
            yield f"| {part} | {', '.join(f'{int(code)} {REQUEST_NAMES[code]}' for code in codes)} |\n"
