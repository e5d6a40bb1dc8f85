"""Canal's server as a process that is started, waited for, and killed (`tests/interop/java/SendCanalChanges.java`).

Its launcher is not published, and of the server 1.1.7 is the newest that is.
"""

import json
from pathlib import Path
from typing import Final

from pyrmq_core.blocking import PullConsumer
from tests.interop.changes.connectors import CAUGHT_UP_SECONDS, MARKER, SUPPORT, compiled
from tests.interop.changes.databases import MariaDB
from tests.support.class_archives import QUICK
from tests.support.java_programs import java_environment
from tests.support.jvm import JavaProcess
from tests.support.maven import java

CANAL: Final = "1.1.7"
SOURCE: Final = Path(__file__).parents[1] / "java" / "SendCanalChanges.java"


class CanalServer:
    """Canal over one database, which begins at the end of the log as it is now; `start` goes on where it stood."""

    def __init__(self, database: MariaDB, name: str, nameserver: str, topic: str, queues: int) -> None:
        self.name = name
        self.home = database.home / f"canal-{name}"
        self.home.mkdir()
        self._nameserver = nameserver
        self._topic = topic
        self._queues = queues
        self._port = database.port
        self._look = database.session()
        self._offsets: dict[object, int] = {}
        self._marks: set[int] = set()
        self._mark = 0
        self.forget()

    def start(self) -> None:
        """Starts it; returns at once."""
        self.process.start()

    def catch_up(self) -> None:
        """Returns when all that was committed before this call is in the topic.

        Canal sends the messages of a batch to several queues at once, and a batch after the one before it: so what
        came before a mark is there with the mark behind it.
        """
        with PullConsumer("judge", nameserver=self._nameserver, timeout=60) as consumer:
            for _ in range(2):
                self._mark += 1
                self._look.run(f"insert into {self.name}.{MARKER} values ({self._mark})")
                self.process.wait_until(lambda: self._has_arrived(consumer), CAUGHT_UP_SECONDS)

    def kill(self) -> None:
        """Sends SIGKILL: the next one sends again what this one had not noted."""
        self.process.kill()

    def forget(self) -> None:
        """Removes what it noted: the next start begins with what is committed from now on."""
        (status,) = self._look.run("show master status")
        file, position, *_ = status.split("\t")
        for path in self.home.rglob("*.dat"):
            path.unlink()
        arguments = [self._nameserver, str(self.home), str(self._port), self.name, self._topic, str(self._queues)]
        classes = compiled(SOURCE, "canal", CANAL, SUPPORT / "pom-canal.xml")
        command = [java(), *QUICK, "-Xmx256m", "-Duser.timezone=UTC", f"-Djava.io.tmpdir={self.home}", "-cp", classes]
        environment = {key: text for key, text in java_environment().items() if key != "JDK_JAVA_OPTIONS"}
        self.process = JavaProcess(
            "Canal", [*command, "SendCanalChanges", *arguments, file, position], self.home / "output.log", environment
        )

    def _has_arrived(self, consumer: PullConsumer) -> bool:
        for queue in consumer.message_queues(self._topic):
            bounds = consumer.offset_bounds([queue])[queue]
            offset = self._offsets.get(queue, bounds.start)
            while offset < bounds.end:
                result = consumer.pull(queue, offset)
                changes = [json.loads(message.body) for message in result.messages]
                self._marks.update(
                    int(row["id"]) for change in changes if change["table"] == MARKER for row in change["data"] or ()
                )
                offset = result.next_offset
            self._offsets[queue] = offset
        return self._mark in self._marks
