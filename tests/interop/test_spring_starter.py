"""RocketMQ's Spring Boot starter 2.3.4 (`SpringJudge.java`): its messages read here, and ours heard by its listener."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.java_programs import java_environment
from tests.support.maven import POM, ApacheUnavailable, jars_of, java
from tests.support.stored_messages import awaited

pytestmark = pytest.mark.timeout(300)

VERSION = "2.3.4"
PROGRAM = Path(__file__).parent / "java" / "SpringJudge.java"
SECONDS = 200
FORMS = {
    "object": '{"id":7,"name":"chá 中","price":12.340,"note":null}'.encode(),
    "list": b"keys",
    "text": b"plain",
    "bytes": b"\x00\xff",
    "keyed": b"keyed",
    "delayed": b"delayed",
    "async": b"async",
    "committed": b"committed",
}


@pytest.mark.parametrize("is_ours", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["ours", "5.4.0"])
def test_spring_sends_and_listens(request: pytest.FixtureRequest, is_ours: bool) -> None:
    try:
        classpath = f"{jars_of('rocketmq-spring', VERSION, POM.with_name('pom-spring.xml'))}/*"
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    if is_ours:
        with EmbeddedCluster(brokers=2) as ours:
            judged(ours.nameserver, classpath)
    else:
        apache_5: ApacheCluster = request.getfixturevalue("apache_5")
        judged(apache_5.nameserver.address, classpath)


def judged(nameserver: str, classpath: str) -> None:
    word = uuid.uuid4().hex[:8]
    orders = [{"id": 8, "name": "tea 中", "price": 12.34, "unknown": [1]}, {"id": 9, "name": None, "price": "0.10"}]
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for topic in (f"spring_{word}", f"ours_{word}"):
            admin.create_topic(topic, queues=4)
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        for order in orders:
            producer.send(Message(f"ours_{word}", json.dumps(order, ensure_ascii=False).encode()))
    printed = run(classpath, nameserver, word)
    listened = sorted(re.findall(r"^listened (\d+ .*)$", printed, re.MULTILINE))
    assert listened == ["8 tea 中 12.34", "9 null 0.10"]
    sent = {form: ids for ids, form in re.findall(r"^sent (\S+) (.*)$", printed, re.MULTILINE)}
    assert sent.keys() == {*FORMS, "batch", "rolled back"}
    assert re.findall(r"^refused (\w+) The name or value of property", printed, re.MULTILINE) == ["blank"]
    messages_are_read(nameserver, f"spring_{word}", sent)


def run(classpath: str, *arguments: str) -> str:
    with tempfile.TemporaryDirectory(prefix="pyrmq-spring-") as home:
        places = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", "-Dfile.encoding=UTF-8"]
        command = [java(), *places, "-cp", classpath, str(PROGRAM), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=java_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def messages_are_read(nameserver: str, topic: str, sent: dict[str, str]) -> None:
    with PullConsumer("readers", nameserver=nameserver, timeout=20) as consumer:
        messages = {message.msg_id: message for message in awaited(consumer, topic, len(FORMS) + 4)}
    assert {form: messages[sent[form]].body for form in FORMS} == FORMS
    batch = [messages[each].body for each in sent["batch"].split(",")]
    assert batch == [b"batch 0", b"batch 1", b"batch 2"]
    assert sent["rolled back"] not in messages
    order = messages[sent["object"]]
    assert (order.tags, order.keys) == ("paid", "order-7 shop-2")
    properties = order.user_properties
    assert (properties.pop("region"), properties.pop("contentType")) == ("são paulo", "application/json")
    assert properties.keys() == {"id", "timestamp"}
    # A list of keys is one text of Java's, and a key that chose the queue is not in the message.
    assert messages[sent["list"]].keys == "[a, b]"
    assert messages[sent["keyed"]].sharding_key is None
