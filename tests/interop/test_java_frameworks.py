"""Spring Cloud Stream 2023.0.3.2 and Camel 4.6.0, judged as `java-frameworks.md` says; Spring's starter has a file."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message, MessageExt
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.java_programs import java_environment, temporary_directory
from tests.support.maven import POM, ApacheUnavailable, jars_of, java
from tests.support.stored_messages import awaited

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]

PROGRAMS = Path(__file__).parent / "java"
SECONDS = 240


@pytest.fixture(params=["ours", "5.4.0"])
def nameserver(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ours":
        with EmbeddedCluster(brokers=2) as ours:
            yield ours.nameserver
    else:
        apache_5: ApacheCluster = request.getfixturevalue("apache_5")
        yield apache_5.nameserver.address


def run(name: str, version: str, program: str, nameserver: str, word: str) -> list[str]:
    """Returns the lines that the program printed against the jars of its framework."""
    try:
        classpath = f"{jars_of(name, version, POM.with_name(f'pom-{name}.xml'))}/*"
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    with temporary_directory(name) as home:
        # Spring looks for the program's class by its name, which the class loader of a source file does not know.
        compiler = [str(Path(java()).with_name("javac")), "-encoding", "UTF-8", "-cp", classpath, "-d", str(home)]
        subprocess.run([*compiler, str(PROGRAMS / f"{program}.java")], timeout=SECONDS, check=True)
        options = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", "-Dfile.encoding=UTF-8"]
        command = [java(), *options, "-cp", f"{home}:{classpath}", program, nameserver, word]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=java_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if re.match("sent |refused |listened |consumed ", line)]


def created(nameserver: str, *topics: str) -> None:
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for topic in topics:
            admin.create_topic(topic, queues=2 if topic.startswith("parts") else 4)


def read(nameserver: str, topic: str, count: int) -> list[MessageExt]:
    with PullConsumer("readers", nameserver=nameserver, timeout=20) as consumer:
        return awaited(consumer, topic, count)


def test_spring_cloud_stream(nameserver: str) -> None:
    word = uuid.uuid4().hex[:8]
    created(nameserver, f"stream_{word}", f"parts_{word}", f"ours_{word}")
    orders = [{"id": 8, "name": "tea 中", "price": 12.34, "unknown": [1]}, {"id": 9, "name": None, "price": "0.10"}]
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        for order in orders:
            producer.send(Message(f"ours_{word}", json.dumps(order, ensure_ascii=False).encode()))
    lines = run("cloud-stream", "2023.0.3.2", "CloudStreamJudge", nameserver, word)
    keys = [f"order-{number}" for number in range(1, 5)]
    forms = ["object", "text", "bytes", "delayed", *keys]
    assert [line for line in lines if not line.startswith("listened")] == [f"sent {form}" for form in forms]
    assert sorted(line for line in lines if line.startswith("listened")) == [
        "listened 8 tea 中 12.34",
        "listened 9 null 0.10",
    ]
    messages = {message.body: message for message in read(nameserver, f"stream_{word}", 4)}
    assert messages.keys() == {
        '{"id":7,"name":"chá 中","price":12.340}'.encode(),
        b'"bare"',
        b'"AP8="',
        b'"later"',
    }
    order = messages['{"id":7,"name":"chá 中","price":12.340}'.encode()]
    assert (order.tags, order.keys) == ("paid", "order-7 shop-2")
    own = dict(order.user_properties)
    assert (own.pop("region"), own.pop("count"), own.pop("contentType")) == ("são paulo", "5", "application/json")
    assert own.pop("target-protocol") == "kafka"
    assert own.keys() == {"id", "timestamp"}
    assert messages[b'"later"'].properties["DELAY"] == "1"
    partitions_are_queues(nameserver, f"parts_{word}", keys)


def partitions_are_queues(nameserver: str, topic: str, keys: list[str]) -> None:
    """With as many queues as partitions a key has the queue of a message with this sharding key."""
    parts = {message.properties["pk"]: message for message in read(nameserver, topic, len(keys))}
    assert parts.keys() == set(keys)
    assert {part.sharding_key for part in parts.values()} == {None}
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        for key in keys:
            ours = producer.send(Message(topic, b"ours", sharding_key=key)).message_queue
            assert ours == parts[key].queue


def test_camel(nameserver: str) -> None:
    word = uuid.uuid4().hex[:8]
    created(nameserver, f"camel_{word}", f"ours_{word}")
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        producer.send(Message(f"ours_{word}", "tea 中".encode(), tags="t", keys=["k"], properties={"region": "eu"}))
        producer.send(Message(f"ours_{word}", b"bare"))
    lines = run("camel", "4.6.0", "CamelJudge", nameserver, word)
    consumed = sorted(line for line in lines if line.startswith("consumed"))
    assert consumed == ["consumed null null null bare", "consumed t k null tea 中"]
    others = [line for line in lines if not line.startswith("consumed")]
    assert others[:2] == ["sent text", "sent bytes"]
    assert re.fullmatch(r"refused map \w*NoTypeConversionAvailable\w*", others[2])
    messages = {message.body: message for message in read(nameserver, f"camel_{word}", 2)}
    assert messages.keys() == {"chá 中".encode(), b"\x00\xff"}
    text = messages["chá 中".encode()]
    assert (text.tags, text.keys, dict(text.user_properties)) == ("paid", "order-7", {})
