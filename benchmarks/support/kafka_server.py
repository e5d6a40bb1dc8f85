"""Apache Kafka's server in KRaft mode, one process for broker and controller, on free loopback ports."""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.apache import free_port
from tests.support.java_programs import java_environment, temporary_directory
from tests.support.jvm import JavaFailed, JavaProcess
from tests.support.maven import jars_of, java

RELEASE: Final = "3.9.1"
POM: Final = Path(__file__).with_name("kafka_server.xml")
BOOT_SECONDS: Final = 90.0
FORMAT_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 2.0
# The memory and collector of Kafka's own start script.
OPTIONS: Final = (
    "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
# ApiVersions (key 18, version 0), correlation id 1, no client id; its answer begins with the same id.
API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """A running server: the address for clients, and the process id."""

    address: str
    pid: int


@contextmanager
def boot_kafka() -> Iterator[KafkaServer]:
    """Yields a server with an empty store, memory-backed where possible. Kills it and removes the store on leaving.

    Raises `ApacheUnavailable` without Maven or network, and `JavaFailed` if it does not start.
    """
    classes = f"{jars_of('kafka', RELEASE, POM)}/*"
    with ExitStack() as stack:
        home = stack.enter_context(temporary_directory(f"kafka-{RELEASE}"))
        port = free_port((0, 1))
        settings = home / "server.properties"
        settings.write_text(_settings(port, home / "data"))
        _format_store(classes, settings)
        command = [java(), *OPTIONS, "-cp", classes, "kafka.Kafka", str(settings)]
        process = JavaProcess(f"Kafka {RELEASE}", command, home / "output.log", java_environment())
        stack.callback(process.kill)
        process.start()
        process.wait_until(lambda: _answers(port), BOOT_SECONDS)
        assert process.pid is not None
        yield KafkaServer(f"127.0.0.1:{port}", process.pid)


def _settings(port: int, data: Path) -> str:
    """Returns the settings of one node. What differs from the defaults serves a single node or a small store."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "auto.create.topics.enable": "false",
        "file.delete.delay.ms": "1000",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _format_store(classes: str, settings: Path) -> None:
    cluster = "p" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")  # "-" would begin an option
    command = [java(), "-cp", classes, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS, env=java_environment())
    if done.returncode:
        raise JavaFailed(f"Kafka could not prepare its store: {(done.stdout + done.stderr).strip()[-500:]}")


def _answers(port: int) -> bool:
    """Returns whether the server answers. It accepts connections before."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as peer:
            peer.sendall(API_VERSIONS)
            return len(peer.recv(8)) == 8
    except OSError:
        return False
