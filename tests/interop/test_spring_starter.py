"""RocketMQ's Spring Boot starter 2.3.4 (`SpringJudge.java`): its messages read here, and ours heard by its listener."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_spark import topics
from tests.support.apache import ApacheCluster
from tests.support.java_programs import java_environment
from tests.support.maven import POM, ApacheUnavailable, jars_of, java
from tests.support.spark import read, spark, wait_readable
from tests.support.stored_messages import awaited, everything
from tests.support.terminal import Terminal

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

VERSION = "2.3.4"
PROGRAM = Path(__file__).parent / "java" / "SpringJudge.java"
SECONDS = 200
SCHEMA = "msgId string, body binary, tags string, keys string, allProperties map<string,string>, shardingKey string"
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


def spring() -> str:
    """Returns the class path of the starter, or skips the test where it cannot be fetched."""
    try:
        return f"{jars_of('rocketmq-spring', VERSION, POM.with_name('pom-spring.xml'))}/*"
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("is_ours", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["ours", "5.4.0"])
def test_spring_sends_and_listens(request: pytest.FixtureRequest, is_ours: bool) -> None:
    classpath = spring()
    if is_ours:
        with EmbeddedCluster(brokers=2) as ours:
            judged(ours.nameserver, classpath)
    else:
        apache_5: ApacheCluster = request.getfixturevalue("apache_5")
        judged(apache_5.nameserver.address, classpath)


@pytest.mark.spark
@pytest.mark.soak
def test_spark_and_the_command_read_what_spring_sent(spark: SparkSession) -> None:
    with EmbeddedCluster(brokers=2) as ours:
        topic, sent = judged(ours.nameserver, spring())
        form_of = {msg_id: form for form, ids in sent.items() for msg_id in ids.split(",")}
        with PullConsumer("readers", nameserver=ours.nameserver) as consumer:
            messages = {message.msg_id: message for message in everything(consumer, topic)}
        wait_readable(ours.nameserver, topic, len(messages))
        rows = {row.msgId: row for row in read(spark, ours.nameserver, SCHEMA, topic=topic).collect()}
        assert rows.keys() == messages.keys()
        for msg_id, message in messages.items():
            columns = (message.body, message.tags, message.keys, dict(message.properties), message.sharding_key)
            assert tuple(rows[msg_id])[1:] == columns, form_of.get(msg_id)
        (view,) = topics(spark, nameServer=ours.nameserver, pattern=topic).values()
        texts = {row.text for row in spark.sql(f"SELECT text FROM {view}").collect()}
        assert {"plain", FORMS["object"].decode()} <= texts
        lines = Terminal(ours.nameserver).text("query", topic, "--key", "order-7", "--json")
        assert sent["object"] in lines
        assert form_of.keys() - rows.keys() == {sent["rolled back"]}


def judged(nameserver: str, classpath: str) -> tuple[str, dict[str, str]]:
    """Returns the topic of the program and the ids of what it sent to it, by form."""
    word = uuid.uuid4().hex[:8]
    orders = [{"id": 8, "name": "tea 中", "price": 12.34, "unknown": [1]}, {"id": 9, "name": None, "price": "0.10"}]
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for topic in (f"spring_{word}", f"ours_{word}", f"asks_{word}"):
            admin.create_topic(topic, queues=4)
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer, ThreadPoolExecutor(1) as threads:
        first, second = (Message(f"ours_{word}", json.dumps(order, ensure_ascii=False).encode()) for order in orders)
        producer.send(first)

        def ask() -> bytes:
            reply = producer.request(Message(f"asks_{word}", "chá".encode()), timeout=SECONDS)
            producer.send(second)  # for which the program waits
            return reply.body

        answered = threads.submit(ask)
        printed = run(classpath, nameserver, word)
        assert answered.result() == "chá, answered".encode()
    listened = sorted(re.findall(r"^listened (\d+ .*)$", printed, re.MULTILINE))
    assert listened == ["8 tea 中 12.34", "9 null 0.10"]
    sent = {form: ids for ids, form in re.findall(r"^sent (\S+) (.*)$", printed, re.MULTILINE)}
    assert sent.keys() == {*FORMS, "batch", "rolled back"}
    assert re.findall(r"^refused (\w+) The name or value of property", printed, re.MULTILINE) == ["blank"]
    messages_are_read(nameserver, f"spring_{word}", sent)
    return f"spring_{word}", sent


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
