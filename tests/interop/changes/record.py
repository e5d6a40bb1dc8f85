"""Lives short lives of a database and a connector, and keeps what the tools wrote as golden messages.

python -m tests.interop.changes.record postgresql 3       writes tests/golden/changes/debezium_postgresql_3.jsonl
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from pyrmq_core.blocking import EmbeddedCluster
from tests.interop.changes.captures import Capture, messages_in
from tests.interop.changes.connectors import DEBEZIUM
from tests.interop.changes.databases import boot_mariadb, boot_postgresql
from tests.interop.changes.lives import live

GOLDEN = Path(__file__).parents[2] / "golden" / "changes"
STEPS = 14


def main(kind: str, seeds: list[int]) -> None:
    """Writes a file for each seed."""
    boot = {"postgresql": boot_postgresql, "mariadb": boot_mariadb}[kind]
    with EmbeddedCluster() as cluster, boot() as database:
        origin = {
            "tool": "Debezium",
            "version": DEBEZIUM["postgres" if kind == "postgresql" else kind],
            "database": kind,
            "database version": database.version(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
        }
        for seed in seeds:
            life = live(database, cluster.nameserver, seed, steps=STEPS)
            topics = {table.full_name: life.topic(table) for table in life.work.tables}
            messages = tuple(messages_in(cluster.nameserver, topics))
            seen = {**origin, "seed": str(seed), "events": ", ".join(life.events), **life.settings}
            capture = Capture(seen, tuple(life.work.tables), topics, life.rows, messages)
            capture.write(GOLDEN / f"debezium_{kind}_{seed}.jsonl")


if __name__ == "__main__":
    main(sys.argv[1], [int(seed) for seed in sys.argv[2:]])
