"""Random work on a database, from a seed: its tables, and steps that change them, one session or two at a time.

Each step commits what it changes. `Work.log` has every statement, so that a fault can be made small.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.interop.changes.columns import LONG, MARIADB, POSTGRESQL, Kind
from tests.interop.changes.connectors import MARKER
from tests.interop.changes.databases import Database, PostgreSQL, Session, StatementError
from tests.support.jvm import POLL_SECONDS

WAIT_SECONDS: Final = 240.0
SIGNALS: Final = "create table dbz_signal (id varchar(64) primary key, type varchar(32) not null, data varchar(2048))"


@dataclass(slots=True)
class Table:
    """A table: its key is `id`, of the variant `parts` also `part`, and `columns` are the other columns by names."""

    owner: str
    name: str
    columns: dict[str, Kind]
    variant: str = ""
    has_full_rows: bool = True
    refusals: set[str] = field(default_factory=set)  # what was done to it that the page answers with an error

    @property
    def keys(self) -> tuple[str, ...]:
        return ("id", "part") if self.variant == "parts" else ("id",)

    @property
    def full_name(self) -> str:
        return f"{self.owner}.{self.name}"


class Work:
    """The work of one seed. Sessions are connections to the database `name`, which it makes."""

    def __init__(self, database: Database, name: str, seed: int, *, topic: str = "") -> None:
        self.random = Random(seed)
        self._topic = topic  # of all tables; empty for one of each
        self.is_postgresql = isinstance(database, PostgreSQL)
        self.database = database
        self.name = name
        self.log: list[str] = []
        quote = '"' if self.is_postgresql else "`"
        self._quote = quote
        database.session().run(f"create database {quote}{name}{quote}")
        self._first, self._second, self._looking = (database.session(name) for _ in range(3))
        self._next_id = 1
        self._next_signal = 1
        self._keeps_long_keys = self.random.random() < 0.7
        # Returns when a connector reads the log: it does not see a signal that its snapshot has.
        self.until_streaming: Callable[[], None] = lambda: None
        self._settle()
        self.tables = self._draw_tables()
        for table in self.tables:
            self._create(table)
            self.insert(table, 6)

    @property
    def topics(self) -> list[str]:
        """The topics of all tables, and of the two that the judge needs."""
        owner = "public" if self.is_postgresql else self.name
        own = [self.topic(table) for table in self.tables]
        return [*own, self.name, *(f"{self.name}_{owner}_{name}" for name in (MARKER, "dbz_signal"))]

    def topic(self, table: Table) -> str:
        return self._topic or f"{self.name}_{table.owner}_{table.name}".replace(".", "_")

    def rows(self, table: Table) -> list[str]:
        """Returns the table's rows as JSON arrays of texts, by the SQL of each column's `truth`."""
        expressions = [
            self._column(key, "{}::text" if self.is_postgresql else "cast({} as char)") for key in table.keys
        ]
        expressions += [self._column(name, kind.truth) for name, kind in table.columns.items()]
        array = "json_build_array" if self.is_postgresql else "json_array"
        cast = "::text" if self.is_postgresql else ""
        return self._first.run(f"select {array}({', '.join(expressions)}){cast} from {self._sql(table)}")

    def live(self, steps: int, *, but: Collection[str] = ()) -> Iterator[str]:
        """Yields the name of each step behind its end."""
        kinds = [name for name in STEPS if name not in but and (self.is_postgresql or name not in POSTGRESQL_ONLY)]
        for name in self.random.choices(kinds, [STEPS[name] for name in kinds], k=steps):
            table = self.random.choice(self.tables)
            self.log.append(f"-- {name} {table.full_name}")
            getattr(self, name)(table)
            yield name

    # Steps: what one session does.

    def insert(self, table: Table, rows: int = 0) -> None:
        self._run(self._insert(table, [self._new_id() for _ in range(rows or self.random.randint(1, 4))]))

    def insert_many(self, table: Table) -> None:
        """Fills one transaction with rows, so that it is more than one message of any batch."""
        self._run(
            "begin", self._insert(table, [self._new_id() for _ in range(self.random.choice((20, 200)))]), "commit"
        )

    def update(self, table: Table) -> None:
        """Changes a column or two of several rows in one statement."""
        self._run(self._update(table, self._some(table, 5)))

    def delete(self, table: Table) -> None:
        self._run(f"delete from {self._sql(table)} where {self._among(self._some(table, 2))}")

    def delete_and_insert(self, table: Table) -> None:
        """Replaces rows inside one transaction, and one of them twice."""
        ids = self._some(table, 2)
        deletion = f"delete from {self._sql(table)} where {self._among(ids)}"
        again = [deletion, self._insert(table, ids)]
        self._run("begin", *again, *(again if self.random.random() < 0.5 else []), "commit")

    def move_keys(self, table: Table) -> None:
        """Gives rows other keys, and one of the old keys to a new row."""
        if not self._may_move(table):
            return
        ids = self._some(table, 3)
        self._next_id += 10_000
        self._run(f"update {self._sql(table)} set id = id + {self._next_id} where {self._among(ids)}")
        self._next_id += max(ids) + 1
        if self.random.random() < 0.5:
            self._run(self._insert(table, ids[:1]))

    def swap_keys(self, table: Table) -> None:
        """Exchanges two keys by three statements in one transaction."""
        if not self._may_move(table):
            return
        first, other = self._two(table)
        free = -self._new_id()
        move = f"update {self._sql(table)} set id = {{}} where id = {{}}"
        self._run("begin", *(move.format(*pair) for pair in ((free, first), (first, other), (other, free))), "commit")

    def _may_move(self, table: Table) -> bool:
        """Returns whether the table's keys change in this life; updates it where they do not."""
        if table.has_full_rows or not self.is_postgresql:
            return True
        if self._keeps_long_keys:
            self.update_other_columns(table)
            return False
        table.refusals.add("a key moved without the long values of its row")
        return True

    def exchange_keys(self, table: Table) -> None:
        """Exchanges two keys in one statement, where the key's check is deferred."""
        if table.variant != "deferred":
            self.swap_keys(table)
            return
        first, other = self._two(table)
        self._run(f"update {self._sql(table)} set id = {first + other} - id where {self._among([first, other])}")
        table.refusals.add("keys were exchanged in one statement")

    def roll_back(self, table: Table) -> None:
        """Takes back a part of a transaction."""
        savepoint = ("savepoint s", self._update(table, self._some(table, 3)), "rollback to savepoint s")
        self._run(
            "begin",
            self._update(table, self._some(table, 2)),
            *savepoint,
            self._insert(table, [self._new_id()]),
            "commit",
        )

    def update_other_columns(self, table: Table) -> None:
        """Leaves long values as they are."""
        small = [name for name, kind in table.columns.items() if kind.sql not in LONG and not name.startswith(LONG)]
        self._run(self._update(table, self._some(table, 4), self.random.choice(small)))

    # Steps of two sessions.

    def wait_for_a_lock(self, table: Table) -> None:
        """Lets one transaction wait for a row of another, which changes it once more before it commits."""
        first, other = self._two(table)
        self._run("begin", self._update(table, [first]))
        self._begin(self._second, self._update(table, [first, other]))
        self._until_waiting()
        self._run(self._update(table, [first]), "commit")
        self._second.finish()

    def interleave(self, table: Table) -> None:
        """Commits two transactions in the other order than that in which they began, or wrote."""
        first, other = self._two(table)
        self._run("begin", self._update(table, [first]))
        self._run("begin", self._update(table, [other]), session=self._second)
        self._run(self._update(table, [first]))
        self._run("commit", session=self._second)
        self._run("commit")

    # Steps that change the table, or ask the connector for its rows.

    def add_column(self, table: Table) -> None:
        """Adds a column whose default old rows have at once, and has the connector read them anew."""
        if "." in table.name:
            self.update(table)
            return
        name = f"added{len(table.columns)}"
        kind = (POSTGRESQL if self.is_postgresql else MARIADB)["number"]
        self._run(f"alter table {self._sql(table)} add column {name} {kind.sql} default 5")
        table.columns[name] = kind
        table.refusals.add("a column was added")
        self.read_again(table)

    def rename_column(self, table: Table) -> None:
        old = self.random.choice([name for name in table.columns if not name.startswith("part")])
        new = f"re_{old}"
        self._run(f"alter table {self._sql(table)} rename column {self._name(old)} to {self._name(new)}")
        table.columns = {new if name == old else name: kind for name, kind in table.columns.items()}
        table.refusals.add("a column was renamed")
        self.insert(table)

    def drop_column(self, table: Table) -> None:
        """Drops a column that the table in Spark does not have."""
        self._run(f"alter table {self._sql(table)} add column extra int", self._insert(table, [self._new_id()]))
        self._run(f"alter table {self._sql(table)} drop column extra", self._insert(table, [self._new_id()]))

    def read_again(self, table: Table) -> None:
        """Has the connector read the table while it streams (an incremental snapshot), and waits until it has.

        A signal of Debezium cannot name a table whose name has a dot.
        """
        if "." in table.name:
            self.update(table)
            return
        data = f'{{"data-collections": ["{table.full_name}"], "type": "incremental"}}'
        self.until_streaming()
        before = self._windows()
        self._next_signal += 1
        self._run(f"insert into dbz_signal values ('s{self._next_signal}', 'execute-snapshot', '{data}')")
        self.update(table)
        _until(lambda: self._windows() > before)

    def _windows(self) -> int:
        """Returns how many parts of tables the connector has read by signals; one each is enough for these tables."""
        return int(self._looking.run("select count(*) from dbz_signal where type = 'snapshot-window-close'")[0])

    # What stands open while a connector takes its snapshot.

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Holds a transaction open over the block, with an update, a deletion and a new row of one table."""
        table = self.random.choice(self.tables)
        first, other = self._two(table)
        deletion = f"delete from {self._sql(table)} where {self._among([other])}"
        self._run("begin", self._update(table, [first]), deletion, self._insert(table, [self._new_id()]))
        yield
        self._run("commit")

    def start_beside_transactions(self, start: Callable[[], None], has_snapshot: Callable[[], bool]) -> None:
        """Starts a connector of PostgreSQL; changes of an open transaction get smaller numbers than its snapshot.

        The slot waits for the first transaction, then for the second; the third begins meanwhile and is open over the
        snapshot.
        """
        third = self.database.session(self.name)
        self._run("begin", "select txid_current()")
        start()
        self._until_waiting()
        self._run("begin", "select txid_current()", session=self._second)
        self._run("commit")
        self._until_waiting()
        table = self.random.choice(self.tables)
        first, other = self._two(table)
        deletion = f"delete from {self._sql(table)} where {self._among([other])}"
        self._run("begin", self._update(table, [first]), deletion, self._insert(table, [self._new_id()]), session=third)
        self._run("commit", session=self._second)
        _until(has_snapshot)
        self._run("commit", session=third)
        third.close()

    def drop_slot(self) -> None:
        """Drops PostgreSQL's slot of a connector that was killed."""
        drop = f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{self.name}'"
        active = f"select count(*) from pg_replication_slots where slot_name = '{self.name}' and active"
        _until(lambda: self._looking.run(active) == ["0"])
        self._run(drop)

    def _draw_tables(self) -> list[Table]:
        random = self.random
        kinds = POSTGRESQL if self.is_postgresql else MARIADB
        owner = "public" if self.is_postgresql else self.name

        def columns(count: int, *names: str) -> dict[str, Kind]:
            drawn = random.sample([name for name in kinds if name not in LONG], count)
            return {name: kinds[name] for name in (*drawn, *names)}

        long = LONG if self.is_postgresql else ("long",)
        plain = Table(owner, "plain", columns(6, "number"))
        long_values = Table(owner, "long_values", columns(2, "number", *long), has_full_rows=False)
        if "labels" in long_values.columns:
            long_values.refusals.add("an array is null in an update without the row before it")
        tables = [plain, long_values]
        others = [Table(owner, "dot.ted", columns(2, "number")), Table(owner, "parts", columns(2, "number"), "parts")]
        if self.is_postgresql:
            others += [
                Table("other", "plain", columns(2, "number")),
                Table(owner, "deferred", columns(2, "number"), "deferred"),
            ]
        return [*tables, random.choice(others)]

    def _settle(self) -> None:
        statements = [SIGNALS, f"create table {MARKER} (id bigint primary key)"]
        if self.is_postgresql:
            statements += ["create schema other", "create type mood as enum ('sad', 'ok', 'very happy')"]
        self._run(*statements)

    def _create(self, table: Table) -> None:
        columns = [f"{self._name(name)} {kind.sql}" for name, kind in table.columns.items()]
        key = f"primary key ({', '.join(table.keys)})"
        if table.variant == "deferred":
            key += " deferrable initially deferred"
        part = ["part varchar(10) not null"] if table.variant == "parts" else []
        text = f"create table {self._sql(table)} ({', '.join(['id bigint not null', *part, *columns, key])})"
        names = [self._sql(table)]
        if table.variant == "parts" and self.is_postgresql:
            self._run(f"{text} partition by list (part)")
            for place in ("eu", "us"):
                names.append(f"{table.owner}.{table.name}_{place}")
                self._run(f"create table {names[-1]} partition of {names[0]} for values in ('{place}')")
        else:
            self._run(text)
        if self.is_postgresql and table.has_full_rows:
            self._run(*(f"alter table {name} replica identity full" for name in names))

    def _insert(self, table: Table, ids: list[int]) -> str:
        names = [*table.keys, *table.columns]
        rows = [
            ", ".join(
                [str(number), *(["'eu'"] if number % 2 else ["'us'"])[: len(table.keys) - 1], *self._values(table)]
            )
            for number in ids
        ]
        listed = ", ".join(map(self._name, names))
        return f"insert into {self._sql(table)} ({listed}) values {', '.join(f'({row})' for row in rows)}"

    def _update(self, table: Table, ids: list[int], *names: str) -> str:
        chosen = names or tuple(self.random.sample(list(table.columns), min(2, len(table.columns))))
        changes = ", ".join(f"{self._name(name)} = {self._value(table.columns[name])}" for name in chosen)
        return f"update {self._sql(table)} set {changes} where {self._among(ids)}"

    def _values(self, table: Table) -> list[str]:
        return [self._value(kind) for kind in table.columns.values()]

    def _value(self, kind: Kind) -> str:
        return "null" if self.random.random() < 0.15 else kind.draw(self.random)

    def _some(self, table: Table, most: int) -> list[int]:
        """Returns keys of the table, at least one."""
        ids = self._ids(table)
        return self.random.sample(ids, min(len(ids), self.random.randint(1, most)))

    def _two(self, table: Table) -> list[int]:
        return self.random.sample(self._ids(table), 2)

    def _ids(self, table: Table) -> list[int]:
        select = f"select id from {self._sql(table)} order by id"
        while len(ids := [int(line) for line in self._looking.run(select)]) < 2:
            self.insert(table, 3)
        return ids

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _among(self, ids: list[int]) -> str:
        return f"id in ({', '.join(map(str, ids))})"

    def _column(self, name: str, expression: str) -> str:
        return expression.format(self._name(name))

    def _sql(self, table: Table) -> str:
        return f"{self._name(table.owner)}.{self._name(table.name)}"

    def _name(self, name: str) -> str:
        return f"{self._quote}{name}{self._quote}"

    def _run(self, *statements: str, session: Session | None = None) -> None:
        for statement in statements:
            self._begin(session or self._first, statement)
            try:
                (session or self._first).finish()
            except StatementError as error:
                raise StatementError(f"{statement[:300]}: {error}") from None

    def _begin(self, session: Session, statement: str) -> None:
        self.log.append(statement if session is self._first else f"/* another session */ {statement}")
        session.begin(statement)

    def _until_waiting(self) -> None:
        _until(lambda: self.database.has_waiting_session(self._looking))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{condition} did not hold within {WAIT_SECONDS} s"
        time.sleep(POLL_SECONDS)


# Each step and how often it is drawn.
STEPS: Final = {
    "insert": 4,
    "insert_many": 1,
    "update": 6,
    "update_other_columns": 3,
    "delete": 3,
    "delete_and_insert": 3,
    "move_keys": 3,
    "swap_keys": 2,
    "exchange_keys": 1,
    "roll_back": 2,
    "wait_for_a_lock": 2,
    "interleave": 2,
    "add_column": 0.3,
    "rename_column": 0.2,
    "drop_column": 0.3,
    "read_again": 1,
}
POSTGRESQL_ONLY: Final = ("exchange_keys",)
