"""Lives short lives of a database and a connector, and keeps what the tools wrote as golden messages.

python -m tests.interop.changes.record debezium postgresql 3   writes tests/golden/changes/debezium_postgresql_3.jsonl
python -m tests.interop.changes.record canal mariadb 3         writes tests/golden/changes/canal_mariadb_3.jsonl
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyrmq_core.blocking import EmbeddedCluster
from tests.interop.changes.canal_server import CANAL
from tests.interop.changes.captures import Capture, messages_in
from tests.interop.changes.connectors import DEBEZIUM
from tests.interop.changes.databases import boot_mariadb, boot_postgresql
from tests.interop.changes.lives import live, live_by_canal

GOLDEN = Path(__file__).parents[2] / "golden" / "changes"
STEPS = 14


def main(tool: str, kind: str, seeds: list[int]) -> None:
    """Writes a file for each seed."""
    boot = {"postgresql": boot_postgresql, "mariadb": boot_mariadb}[kind]
    lives: Any = live_by_canal if tool == "canal" else live
    with EmbeddedCluster() as cluster, boot() as database:
        origin = {
            "tool": tool,
            "version": CANAL if tool == "canal" else DEBEZIUM["postgres" if kind == "postgresql" else kind],
            "database": kind,
            "database version": database.version(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
        }
        for seed in seeds:
            life = lives(database, cluster.nameserver, seed, steps=STEPS)
            topics = {table.full_name: life.topic(table) for table in life.work.tables}
            messages = tuple(messages_in(cluster.nameserver, topics))
            seen = {**origin, "seed": str(seed), "events": ", ".join(life.events), **life.settings}
            capture = Capture(seen, tuple(life.work.tables), topics, life.rows, messages)
            capture.write(GOLDEN / f"{tool}_{kind}_{seed}.jsonl")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(seed) for seed in sys.argv[3:]])
