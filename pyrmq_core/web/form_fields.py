"""`read_fields`: the fields of a form that a browser sent, decoded in turns: 4 MiB of percent signs take a second."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

import trio

from pyrmq_core.errors import InvalidArgument

MAX_FIELDS: Final = 32
# Some milliseconds of decoding; others have their turn behind each.
SLICE_BYTES: Final = 64 * 1024


def raw_field(form: bytes, name: bytes, most: int) -> str:
    """Returns the beginning of a field as it was sent, `most` bytes of it; an empty text without the field."""
    before, found, after = (b"&" + form).partition(b"&" + name + b"=")
    del before
    return after[:most].partition(b"&")[0].decode("latin-1") if found else ""


async def read_fields(form: bytes) -> dict[str, str]:
    """Returns the fields by name; raises `InvalidArgument` for more than `MAX_FIELDS`."""
    fields = form.split(b"&", MAX_FIELDS)
    if len(fields) > MAX_FIELDS:
        raise InvalidArgument(f"the form has more than {MAX_FIELDS} fields")
    split = [field.partition(b"=") for field in fields]
    return {await _decoded(name): await _decoded(value) for name, _, value in split}


async def _decoded(sent: bytes) -> str:
    pieces, start = [], 0
    while start < len(sent):
        end = start + SLICE_BYTES
        cut = sent.rfind(b"%", end - 2, end)  # a percent sign and its digits stay together
        end = end if cut < 0 else cut
        pieces.append(unquote_to_bytes(sent[start:end].replace(b"+", b" ")))
        start = end
        await trio.lowlevel.checkpoint()
    return b"".join(pieces).decode("utf-8", "replace")
