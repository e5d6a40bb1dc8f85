"""A table of SQLite whose triggers record its changes, as messages of Canal and Debezium: the source of a capture."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

COLUMNS: Final = ("id", "name", "amount", "note")
DDL: Final = "id bigint, name string, amount decimal(12,2), note string"
ROW = "json_object('id', {0}.id, 'name', {0}.name, 'amount', {0}.amount, 'note', {0}.note)"
OPS: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}

Row = dict[str, Any]
Change = tuple[str, Row | None, Row | None]


class SourceTable:
    """The table `shop.customers`; `changes` are those of all statements so far, in their order."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.executescript(
            f"""
            CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, amount TEXT, note TEXT);
            CREATE TABLE log (op TEXT, before TEXT, after TEXT);
            CREATE TRIGGER i AFTER INSERT ON customers BEGIN
                INSERT INTO log VALUES ('c', NULL, {ROW.format("NEW")}); END;
            CREATE TRIGGER u AFTER UPDATE ON customers BEGIN
                INSERT INTO log VALUES ('u', {ROW.format("OLD")}, {ROW.format("NEW")}); END;
            CREATE TRIGGER d AFTER DELETE ON customers BEGIN
                INSERT INTO log VALUES ('d', {ROW.format("OLD")}, NULL); END;
            """
        )

    def run(self, statement: str, *values: object) -> None:
        self._database.execute(statement, values)

    def live(self, steps: int, seed: int) -> None:
        """Inserts, changes and deletes rows, and changes keys, as the seed says."""
        draw = random.Random(seed)
        for step in range(steps):
            key, other = draw.randrange(30), 100 + draw.randrange(30)
            amount = f"{draw.randrange(10**6) / 100:.2f}"
            note = draw.choice((None, "", 'a "quoted" ünïcode\n line', "x"))
            match draw.randrange(5):
                case 0 | 1:
                    self.run("INSERT OR IGNORE INTO customers VALUES (?, ?, ?, ?)", key, f"c{step}", amount, note)
                case 2:
                    self.run("UPDATE customers SET amount = ?, note = ? WHERE id % 7 = ?", amount, note, key % 7)
                case 3:
                    self.run("DELETE FROM customers WHERE id = ?", key)
                case _:
                    self.run("UPDATE OR IGNORE customers SET id = ? WHERE id = ?", other, key)

    def rows(self) -> list[tuple[object, ...]]:
        return self._database.execute("SELECT * FROM customers ORDER BY id").fetchall()

    def changes(self) -> list[Change]:
        read = self._database.execute("SELECT * FROM log ORDER BY rowid").fetchall()
        return [(op, before and json.loads(before), after and json.loads(after)) for op, before, after in read]


def canal_messages(changes: list[Change], *, first: int = 0) -> Iterator[str]:
    """Yields flat messages, as one of several rows where changes of one kind follow one another.

    `first` is the number of changes before these.
    """
    start = 0
    for end in range(1, len(changes) + 1):
        if end == len(changes) or changes[end][0] != changes[start][0] or end - start == 3:
            yield canal_message(changes[start:end], number=first + start)
            start = end


def canal_message(changes: list[Change], *, number: int = 0, **other: object) -> str:
    op = changes[0][0]
    old = [
        {name: _text(value) for name, value in before.items() if after is None or value != after[name]}
        for _, before, after in changes
        if before is not None
    ]
    message: dict[str, object] = {
        "data": [
            {name: _text(value) for name, value in (after or before or {}).items()} for _, before, after in changes
        ],
        "database": "shop",
        "es": 1_700_000_000_000 + number // 20 * 1000,  # the log of MySQL has seconds
        "gtid": "",
        "id": number,
        "isDdl": False,
        "mysqlType": {"id": "bigint"},
        "old": old if op == "u" else None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": -5},
        "table": "customers",
        "ts": 1_700_000_009_000,
        "type": OPS[op],
    }
    return json.dumps(message | other)


def debezium_messages(changes: list[Change]) -> Iterator[str]:
    """Yields envelopes, every second one with its schema around it, and tombstones behind deletes."""
    for number, (op, before, after) in enumerate(changes):
        yield debezium_message(op, before, after, number=number, wrapped=number % 2 == 0)
        if op == "d":
            yield "null" if number % 2 else '{"schema": null, "payload": null}'


def debezium_message(
    op: str | None, before: Row | None, after: Row | None, *, number: int = 0, wrapped: bool = False
) -> str:
    source = {
        "connector": "mysql",
        "db": "shop",
        "table": "customers",
        "ts_ms": 1_700_000_000_000,
        "file": f"mysql-bin.{3 + number // 50:06}",
        "pos": 154 + number % 50 * 311,
        "row": 0,
    }
    envelope = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_500}
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": envelope} if wrapped else envelope)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
