"""OpenTelemetry's Java agent 2.20.1 on Java's client: its traces go on here, and ours there.

`test_traces_through_java` has the same with hooks of our own in the Java program.
"""

from __future__ import annotations

import re
import subprocess
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from pyrmq_core import ConsumeFromWhere, Message, MessageExt
from pyrmq_core.blocking import Admin, Client, EmbeddedCluster, Producer, PushConsumer
from tests.otel.test_client import Seen, ids, parent_of
from tests.support.apache import ApacheCluster
from tests.support.java_programs import java_command, java_environment, temporary_directory
from tests.support.maven import POM, ApacheUnavailable, jars_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]

VERSION = "2.20.1"
PROGRAM = Path(__file__).parent / "java" / "AgentHops.java"
SECONDS = 240
ALONE = {"single", "async", "one-way"}
MEMBERS = {"member 0", "member 1"}
# The agent logs its spans: 'TOPIC publish' : TRACE SPAN PRODUCER [...].
SPAN = re.compile(r"'[^']*' : ([0-9a-f]{32}) ([0-9a-f]{16}) (PRODUCER|CONSUMER) ")


def test_traces_go_on_in_both_directions() -> None:
    with EmbeddedCluster() as cluster:
        traced(cluster.nameserver)


def test_traces_go_on_over_a_broker_of_apaches(apache_5: ApacheCluster) -> None:
    traced(apache_5.nameserver.address)


def traced(nameserver: str) -> None:
    seen, word = Seen(), uuid.uuid4().hex[:8]
    theirs, ours = f"agent_{word}", f"ours_{word}"
    with Client(nameserver=nameserver) as client, Admin(client=client, timeout=20) as admin:
        for topic in (theirs, ours):
            admin.create_topic(topic, queues=1)
        with Producer("senders", client=client, hooks=[seen.hook], send_timeout=20) as producer:
            producer.send(Message(ours, b"from Python"))
        (create,) = seen.spans(f"create {ours}")
        spans = agent(nameserver, theirs, ours)
        context_of = consumed(client, theirs, seen)
    assert [trace for trace, _, kind in spans if kind == "CONSUMER"] == [f"{ids(create)[0]:032x}"]
    assert {body for body, context in context_of.items() if context is None} == MEMBERS
    carried = {tuple(int(part, 16) for part in context.split("-")[1:3]) for context in context_of.values() if context}
    parents = [parent_of(span) for span in seen.spans(f"process {theirs}")]
    assert (len(carried), parents.count(None), len(parents)) == (len(ALONE), len(MEMBERS), len(ALONE | MEMBERS))
    assert set(parents) == {*carried, None}
    # The agent never ends the span of a one-way send; a batch has one, of which its members know nothing.
    published = {(int(trace, 16), int(span, 16)) for trace, span, kind in spans if kind == "PRODUCER"}
    one_way = context_of["one-way"]
    assert one_way is not None
    assert {f"{trace:032x}" for trace, _ in carried - published} == {one_way.split("-")[1]}
    assert len(published) == len(ALONE)


def agent(nameserver: str, theirs: str, ours: str) -> list[tuple[str, str, str]]:
    """Runs the program with the agent, and returns trace, span and kind of what it logged."""
    try:
        jar = next(jars_of("javaagent", VERSION, POM.with_name("pom-javaagent.xml")).glob("*.jar"))
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    options = [f"-javaagent:{jar}", "-Dotel.traces.exporter=console"]
    options += [f"-Dotel.{kind}.exporter=none" for kind in ("metrics", "logs")]
    with temporary_directory("5.4.0") as home:
        command = java_command("5.4.0", home, *options, str(PROGRAM), nameserver, theirs, ours)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=java_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "consumed from Python" in done.stdout.splitlines()
    return SPAN.findall(done.stderr)


def consumed(client: Client, topic: str, seen: Seen) -> dict[str, str | None]:
    """Consumes what the program sent, and returns the context that each message carries."""
    context_of: dict[str, str | None] = {}
    first = ConsumeFromWhere.FIRST_OFFSET
    with PushConsumer(f"r_{topic}", client=client, hooks=[seen.hook], consume_from_where=first) as consumer:
        consumer.subscribe(topic)

        def handler(messages: Sequence[MessageExt]) -> None:
            context_of.update({each.body.decode(): each.properties.get("traceparent") for each in messages})
            if len(context_of) == len(ALONE | MEMBERS):
                ended.set()

        ended = threading.Event()
        running = threading.Thread(target=consumer.run, args=(handler,))
        running.start()
        assert ended.wait(60), context_of
        consumer.stop()
        running.join(60)
    return context_of
