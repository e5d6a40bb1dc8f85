"""Messages that a tool wrote, with the rows of its database beside them, as a file that needs neither of them again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pyrmq_core.blocking import PullConsumer
from tests.interop.changes.columns import MARIADB, POSTGRESQL
from tests.interop.changes.work import Table

COLUMNS: Final = "topic string, brokerName string, queueId int, queueOffset bigint, keys string, body binary"
KINDS: Final = {"postgresql": POSTGRESQL, "mariadb": MARIADB}
WITH_SCHEMA: Final = '{"schema":'


class CapturedMessage(NamedTuple):
    """A message where it lies."""

    topic: str
    broker: str
    queue: int
    offset: int
    keys: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Capture:
    """All messages of some tables, and what the tables held then; `origin` names tool, database, versions, and date."""

    origin: Mapping[str, str]
    tables: tuple[Table, ...]
    topics: Mapping[str, str]  # of each table, by its full name
    rows: Mapping[str, list[str]]
    messages: tuple[CapturedMessage, ...]

    def frame(self, spark: SparkSession, table: Table) -> DataFrame:
        """Returns the messages of a table as the source reads them."""
        topic = self.topics[table.full_name]
        rows = [(*message[:5], bytearray(message.body.encode())) for message in self.messages if message.topic == topic]
        return spark.createDataFrame(rows, COLUMNS)

    def write(self, path: Path) -> None:
        """Writes the file: one message a line, and each schema of Debezium's once."""
        schemas: dict[str, int] = {}
        lines = [json.dumps([*message[:5], *_divided(message.body, schemas)]) for message in self.messages]
        head = {
            "origin": dict(self.origin),
            "tables": [self._described(table) for table in self.tables],
            "schemas": list(schemas),
        }
        path.write_text("\n".join([json.dumps(head), *lines]) + "\n")

    def _described(self, table: Table) -> dict[str, Any]:
        kinds = KINDS[self.origin["database"]]
        columns = {name: next(word for word in kinds if kinds[word] is kind) for name, kind in table.columns.items()}
        return {
            "owner": table.owner,
            "name": table.name,
            "columns": columns,
            "variant": table.variant,
            "refusals": sorted(table.refusals),
            "topic": self.topics[table.full_name],
            "rows": self.rows[table.full_name],
        }


def read_capture(path: Path) -> Capture:
    """Returns what `Capture.write` wrote."""
    first, *lines = path.read_text().splitlines()
    head = json.loads(first)
    kinds = KINDS[head["origin"]["database"]]
    tables, topics, rows = [], {}, {}
    for entry in head["tables"]:
        columns = {name: kinds[word] for name, word in entry["columns"].items()}
        table = Table(entry["owner"], entry["name"], columns, entry["variant"], refusals=set(entry["refusals"]))
        tables.append(table)
        topics[table.full_name] = entry["topic"]
        rows[table.full_name] = entry["rows"]
    messages = []
    for line in lines:
        topic, broker, queue, offset, keys, schema, text = json.loads(line)
        body = text if schema is None else f'{WITH_SCHEMA}{head["schemas"][schema]},"payload":{text}}}'
        messages.append(CapturedMessage(topic, broker, queue, offset, keys, body))
    return Capture(head["origin"], tuple(tables), topics, rows, tuple(messages))


def messages_in(nameserver: str, topics: Mapping[str, str]) -> Iterator[CapturedMessage]:
    """Yields all messages of the topics, queue by queue."""
    with PullConsumer("captures", nameserver=nameserver, timeout=60) as consumer:
        for topic in sorted(set(topics.values())):
            for queue in consumer.message_queues(topic):
                bounds = consumer.offset_bounds([queue])[queue]
                offset = bounds.start
                while offset < bounds.end:
                    result = consumer.pull(queue, offset)
                    for message in result.messages:
                        body = message.body.decode()
                        yield CapturedMessage(
                            topic, queue.broker_name, queue.queue_id, message.queue_offset, message.keys, body
                        )
                    offset = result.next_offset


def _divided(body: str, schemas: dict[str, int]) -> tuple[int | None, str]:
    """Returns the number of the schema in the body, and the payload; all of the body where it has no schema."""
    if not body.startswith(WITH_SCHEMA):
        return None, body
    _, end = json.JSONDecoder().raw_decode(body, len(WITH_SCHEMA))
    schema, payload = body[len(WITH_SCHEMA) : end], body[end + len(',"payload":') : -1]
    assert body == f'{WITH_SCHEMA}{schema},"payload":{payload}}}'
    return schemas.setdefault(schema, len(schemas)), payload
