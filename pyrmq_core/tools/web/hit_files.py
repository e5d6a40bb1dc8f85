"""`HitFile`: the matches of a search as a file to download, as JSON lines or CSV, in memory up to `FILE_BYTES`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from typing import Any, Final

from pyrmq_core.model import MessageExt
from pyrmq_core.tools.search.json_output import json_text
from pyrmq_core.tools.search.written_messages import csv_rows, json_lines

FILE_BYTES: Final = 16 * 1024 * 1024
JSONL: Final = "jsonl"
# A click opens a CSV file in a spreadsheet, which must not compute cells that a sender wrote.
WRITERS: Final[Mapping[str, Callable[[Any], Callable[[MessageExt], object]]]] = {
    JSONL: json_lines,
    "csv": partial(csv_rows, quotes_formulas=True),
}


class HitFile:
    """A file of matches that is being written. `rest` names the matches that did not fit, or is empty if all did."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.rest = ""
        self._content = bytearray()
        self._text = StringIO(newline="")
        self._write = WRITERS[form](self._text)

    def add(self, messages: Sequence[MessageExt]) -> None:
        """Adds messages, the newest first, until one does not fit. Leaves out this message and all later ones."""
        for message in messages:
            if self.rest:
                return
            self._write(message)
            line = self._written()
            if len(self._content) + len(line) > FILE_BYTES:
                self.rest = f"matches from {message.store_timestamp.isoformat()} back, beyond {FILE_BYTES:,} bytes"
            else:
                self._content += line

    def end(self, rest: str) -> bytes:
        """Ends the file and returns its bytes.

        If matches did not fit or messages were not searched, its last line says which. `rest` is the caller's text
        about messages that were not searched, or empty.
        """
        self._content += self._written()  # the head of a file without messages
        if rest := "; ".join(filter(None, (self.rest, rest))):
            if self.form == JSONL:
                self._text.write(json_text({"notRead": rest}) + "\n")
            else:
                csv.writer(self._text).writerow([f"not read: {rest}"])
        return bytes(self._content + self._written())

    def _written(self) -> bytes:
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text.encode(errors="replace")
