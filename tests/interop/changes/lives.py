"""One life of a database and its connector, from a seed: random work, kills, snapshots, a log that begins anew."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyrmq_core.blocking import Admin
from tests.interop.changes.canal_server import CanalServer
from tests.interop.changes.connectors import Debezium
from tests.interop.changes.databases import Database, MariaDB
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
    },
}


class Connector(Protocol):
    """A tool that reads a database's log."""

    def start(self) -> None: ...

    def catch_up(self) -> None: ...

    def kill(self) -> None: ...

    def forget(self) -> None: ...


Happening = Callable[[Work, Connector], None]


@dataclass(frozen=True, slots=True)
class Life:
    """The remains of a life: its tables, and the rows of each in the database, as `Work.rows` gives them."""

    work: Work
    rows: Mapping[str, list[str]]
    events: tuple[str, ...]
    settings: Mapping[str, str]  # of the engine, that the seed drew
    tool: str = "debezium"

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
    work.until_streaming = connector.catch_up
    kinds = [_kill, _kill, _read_all_again, *([] if work.is_postgresql else [_begin_log_anew])]
    may_read_twice = not work.is_postgresql and drawn["offset.flush.interval.ms"] != "0"
    try:
        events = [_begin(work, connector), *_live(work, connector, kinds, steps, STATEMENTS if may_read_twice else ())]
        connector.catch_up()
    finally:
        connector.kill()
    return Life(work, {table.full_name: work.rows(table) for table in work.tables}, tuple(events), drawn)


def live_by_canal(database: MariaDB, nameserver: str, seed: int, *, steps: int = STEPS) -> Life:
    """Lives the life of a seed with Canal, which takes no snapshot: it reads the log from before the tables.

    No statement changes a table: Canal's memory of columns (`canal.instance.tsdb.enable`) needs files of its launcher,
    and without it rows from before an ALTER stop it.
    """
    name = f"c{seed}"
    with Admin(nameserver=nameserver, timeout=60) as admin:
        admin.create_topic(name, queues=QUEUES)
    connector = CanalServer(database, name, nameserver, name, QUEUES)
    work = Work(database, name, seed, topic=name)
    for table in work.tables:
        if "latin" in table.columns:
            table.refusals.add("a text is not UTF-8")
    try:
        connector.start()
        events = [*_live(work, connector, [_kill, _kill, _begin_log_anew], steps, (*WAITING_STEPS, *STATEMENTS))]
        connector.catch_up()
    finally:
        connector.kill()
    return Life(work, {table.full_name: work.rows(table) for table in work.tables}, tuple(events), {}, "canal")


def _live(
    work: Work, connector: Connector, kinds: Sequence[Happening], steps: int, but: Collection[str]
) -> Iterator[str]:
    """Does the work, and kills the connector now and then; yields what happened beside the work."""
    random = work.random
    happening = dict(zip(random.sample(range(1, steps), 2), random.sample(kinds, 2), strict=True))
    for number, _ in enumerate(work.live(steps, but=but)):
        if number in happening:
            happening[number](work, connector)
            yield happening[number].__name__.lstrip("_")


def _begin(work: Work, connector: Connector) -> str:
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


def _kill(work: Work, connector: Connector) -> None:
    """Kills the connector in the middle of what it does, and starts it again."""
    connector.kill()
    for _ in work.live(2, but=(*WAITING_STEPS, *STATEMENTS)):
        pass
    connector.start()


def _read_all_again(work: Work, connector: Connector) -> None:
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


def _begin_log_anew(work: Work, connector: Connector) -> None:
    """Begins the log with another number, as that of a server which takes over from a lost one may have.

    Debezium begins with a second snapshot, whose positions may be before those of its first one, Canal with the log.
    """
    connector.catch_up()
    connector.kill()
    number = work.random.choice((1, 7, 999_999))
    work.database.session().run(f"reset master to {number}", *["flush binary logs"] * 2)
    connector.forget()
    connector.start()
    connector.catch_up()
