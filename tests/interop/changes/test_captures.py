"""The golden messages of changes: whole, and of the tables that are kept beside them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.changes.captures import Capture, read_capture
from tests.interop.changes.judge import differences
from tests.interop.changes.record import GOLDEN
from tests.interop.changes.work import Table

FILES = sorted(GOLDEN.glob("*.jsonl"))


def keys_in_order(capture: Capture, table: Table) -> set[tuple[str, ...]]:
    """Returns the keys that a table has when changes are taken in the order in which the tool read them."""
    keys: set[tuple[str, ...]] = set()
    of_tool = changes_of_canal if capture.origin["tool"] == "canal" else changes_of_debezium
    for is_deleted, values in of_tool(capture, table):
        (keys.discard if is_deleted else keys.add)(tuple(str(values[name]) for name in table.keys))
    return keys


def changes_of_debezium(capture: Capture, table: Table) -> Iterator[tuple[bool, dict[str, object]]]:
    """Yields whether a row is gone, and its key."""
    own = [message for message in capture.messages if message.topic == capture.topics[table.full_name]]
    changes = [(json.loads(message.keys or "null")["payload"], json.loads(message.body)["payload"]) for message in own]
    for key, change in sorted(changes, key=lambda pair: pair[1]["ts_ns"]):
        yield change["op"] == "d", key


def changes_of_canal(capture: Capture, table: Table) -> Iterator[tuple[bool, dict[str, object]]]:
    """Yields whether a row is gone, and the row."""
    changes = [json.loads(message.body) for message in capture.messages]
    for change in changes:
        if f"{change['database']}.{change['table']}" == table.full_name and not change["isDdl"]:
            yield from ((True, row | old) for row, old in zip(change["data"], change["old"] or (), strict=False))
            yield from ((change["type"] == "DELETE", row) for row in change["data"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_messages_have_the_keys_of_their_tables(path: Path) -> None:
    capture = read_capture(path)
    assert {"tool", "version", "database", "database version", "date", "seed"} <= set(capture.origin)
    for table in capture.tables:
        rows = [json.loads(line) for line in capture.rows[table.full_name]]
        assert rows
        assert keys_in_order(capture, table) == {tuple(row[: len(table.keys)]) for row in rows}


def test_a_capture_is_written_as_it_was_read(tmp_path: Path) -> None:
    first = FILES[0]
    read_capture(first).write(tmp_path / "again")
    assert (tmp_path / "again").read_text() == first.read_text()


def test_differences_are_named() -> None:
    capture = read_capture(FILES[0])
    table = capture.tables[0]
    rows = [json.loads(line) for line in capture.rows[table.full_name]]
    assert list(differences(table, rows, rows)) == []
    spoiled = [row.copy() for row in rows[1:]]
    spoiled[0][-1] = "other"
    lines = "".join(differences(table, rows, [*spoiled, ["0", *rows[0][1:]], spoiled[-1]]))
    assert f"row ('{rows[0][0]}',) is missing" in lines
    assert "row ('0',) is too many" in lines
    assert "is 'other', the database has" in lines
    assert "1 keys are there twice" in lines
