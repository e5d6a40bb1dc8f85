"""One life of a database and its connector, from a seed: random work, kills, snapshots, a log that begins anew."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.blocking import Admin
from tests.interop.changes.connectors import Debezium
from tests.interop.changes.databases import Database
from tests.interop.changes.work import Table, Work

STEPS: Final = 40
QUEUES: Final = 4
# Steps that would leave rows which no message removes, while no connector looks.
UNSEEN_STEPS: Final = ("delete", "delete_and_insert", "move_keys", "swap_keys", "exchange_keys", "rename_column")
# Statements that MariaDB's connector may read twice behind a kill: its parser ends at the second reading.
STATEMENTS: Final = ("add_column", "rename_column", "drop_column")
# Steps that wait for the connector.
WAITING_STEPS: Final = ("read_again", "add_column")
# What the page asks of Debezium.
SETTINGS: Final[Mapping[str, str]] = {
    "decimal.handling.mode": "string",
    "converter.schemas.enable": "true",
    "converter.replace.null.with.default": "false",
}
MORE_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "postgres": {"publish.via.partition.root": "true"},
    "mariadb": {
        "snapshot.mode": "when_needed",
        "bigint.unsigned.handling.mode": "precise",
        "driver.sessionVariables": "time_zone='+00:00'",
    },
}


@dataclass(frozen=True, slots=True)
class Life:
    """The remains of a life: its tables, and the rows of each in the database, as `Work.rows` gives them."""

    work: Work
    rows: Mapping[str, list[str]]
    events: tuple[str, ...]
    settings: Mapping[str, str]  # of the engine, that the seed drew

    def topic(self, table: Table) -> str:
        return self.work.topic(table)


def live(
    database: Database, nameserver: str, seed: int, *, settings: Mapping[str, str] | None = None, steps: int = STEPS
) -> Life:
    """Lives the life of a seed and returns when all its changes are in the topics."""
    work = Work(database, f"s{seed}", seed)
    with Admin(nameserver=nameserver, timeout=60) as admin:
        for topic in work.topics:
            admin.create_topic(topic, queues=QUEUES)
    tool = "postgres" if work.is_postgresql else "mariadb"
    drawn = {
        # How often it notes what it sent, and so how much it sends again when it was killed.
        "offset.flush.interval.ms": work.random.choice(("0", "60000")),
        # The sink sends a batch's messages all at once: only batches of one keep the order of changes in a queue.
        "max.batch.size": work.random.choice(("1", "2048")),
    }
    asked = {**SETTINGS, **MORE_SETTINGS[tool], **drawn, **(settings or {})}
    connector = Debezium(database, work.name, nameserver, asked)
    try:
        events = _live(work, connector, steps)
        connector.catch_up()
    finally:
        connector.kill()
    return Life(work, {table.full_name: work.rows(table) for table in work.tables}, tuple(events), drawn)


def _live(work: Work, connector: Debezium, steps: int) -> list[str]:
    """Does the work, and kills the connector now and then; returns what happened beside the work."""
    random = work.random
    events = [_begin(work, connector)]
    kinds = [_kill, _kill, _read_all_again, *([] if work.is_postgresql else [_begin_log_anew])]
    happening = dict(zip(random.sample(range(1, steps), 2), random.sample(kinds, 2), strict=True))
    may_read_twice = not work.is_postgresql and connector.settings["offset.flush.interval.ms"] != "0"
    for number, _ in enumerate(work.live(steps, but=STATEMENTS if may_read_twice else ())):
        if number in happening:
            happening[number](work, connector)
            events.append(happening[number].__name__.lstrip("_"))
    return events


def _begin(work: Work, connector: Debezium) -> str:
    """Starts the connector, mostly beside transactions that are open while it takes its snapshot."""
    kind = work.random.choice(("start beside transactions", "start in an open transaction", "start"))
    if kind == "start beside transactions" and work.is_postgresql:
        is_ready = f"slot_name = '{work.name}' and confirmed_flush_lsn is not null"
        slot = f"select count(*) from pg_replication_slots where {is_ready}"
        looking = work.database.session(work.name)
        work.start_beside_transactions(connector.start, lambda: looking.run(slot) == ["1"])
        connector.catch_up()
    elif kind == "start in an open transaction" and not work.is_postgresql:
        with work.open_transaction():
            connector.start()
            connector.catch_up()
    else:
        kind = "start"
        connector.start()
        connector.catch_up()
    return kind


def _kill(work: Work, connector: Debezium) -> None:
    """Kills the connector in the middle of what it does, and starts it again."""
    connector.kill()
    for _ in work.live(2, but=(*WAITING_STEPS, *STATEMENTS)):
        pass
    connector.start()


def _read_all_again(work: Work, connector: Debezium) -> None:
    """Loses what the connector noted, and PostgreSQL's slot: it begins with a second snapshot."""
    connector.catch_up()
    connector.kill()
    connector.forget()
    for _ in work.live(2, but=(*UNSEEN_STEPS, *WAITING_STEPS, *STATEMENTS)):
        pass
    if work.is_postgresql:
        work.drop_slot()
    connector.start()
    connector.catch_up()


def _begin_log_anew(work: Work, connector: Debezium) -> None:
    """Begins the log with another number, as that of a server which takes over from a lost one may have.

    The connector begins with a second snapshot, whose positions may be before those of its first one.
    """
    connector.catch_up()
    connector.kill()
    connector.forget()
    number = work.random.choice((1, 7, 999_999))
    work.database.session().run(f"reset master to {number}", *["flush binary logs"] * 2)
    connector.start()
    connector.catch_up()
