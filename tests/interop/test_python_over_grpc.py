"""RocketMQ's own Python client (rocketmq-python-client 5.1.2, gRPC), through a proxy of 5.4.0, beside ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core import Message, MessageExt, select_like_proxy
from pyrmq_core.blocking import Admin, PopConsumer, Producer, PullConsumer
from tests.support.apache import boot_cluster
from tests.support.apart import installed_apart
from tests.support.maven import ApacheUnavailable
from tests.support.proxies import boot_proxy
from tests.support.stored_messages import awaited

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]

PROGRAM = Path(__file__).parent / "python_grpc" / "client.py"
# All but what the environment has.
PACKAGES = (
    *("rocketmq-python-client==5.1.2", "grpcio==1.85.3", "grpcio-tools==1.85.1", "protobuf==7.36.2"),
    *("googleapis-common-protos==1.76.0", "opentelemetry-exporter-otlp==1.45.2", "opentelemetry-proto==1.45.2"),
    *("opentelemetry-exporter-otlp-common==0.66b2", "opentelemetry-exporter-otlp-proto-common==1.45.2"),
    *("opentelemetry-exporter-otlp-proto-grpc==1.45.2", "opentelemetry-exporter-otlp-proto-http==1.45.2"),
    "opentelemetry-exporter-http-transport==0.66b2",
)
SECONDS = 200
QUEUES = 13  # a wrong hash of a group chooses the same one of them more rarely than one of four


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """The NameServer and the proxy's gRPC port of a cluster with one broker."""
    with ExitStack() as stack:
        try:
            installed_apart("rocketmq-grpc", PACKAGES)
            cluster = stack.enter_context(boot_cluster("5.4.0", ("broker-a",)))
            proxy = stack.enter_context(boot_proxy(cluster))
        except ApacheUnavailable as reason:
            pytest.skip(str(reason))
        yield cluster.nameserver.address, proxy.grpc_address


def run(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Returns what the program printed; it logs into a home of its own."""
    paths = [str(installed_apart("rocketmq-grpc", PACKAGES))]
    environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_messages_are_equal_both_ways(addresses: tuple[str, str], tmp_path: Path) -> None:
    nameserver, endpoint = addresses
    word = uuid.uuid4().hex[:8]
    types = {"plain": "NORMAL", "fifo": "FIFO", "later": "DELAY", "ours": "NORMAL"}
    topics = {name: f"{name}_{word}" for name in types}
    group = f"readers_{word}"
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for name, kind in types.items():
            admin.create_topic(topics[name], queues=QUEUES, attributes={"message.type": kind})
        admin.groups.create(group)
    sent = run(tmp_path, "send", endpoint, *(topics[name] for name in ("plain", "fifo", "later")))
    with PullConsumer("readers", nameserver=nameserver, timeout=20) as consumer:
        (plain,) = awaited(consumer, topics["plain"], 1)
        grouped = awaited(consumer, topics["fifo"], 3)
        (later,) = awaited(consumer, topics["later"], 1)
        with consumer.read_arrow(
            plain.queue, plain.queue_offset, plain.queue_offset + 1, columns=["producerHost"]
        ) as batches:
            hosts = [host for batch in batches for host in batch.column("producerHost").to_pylist()]
    assert hosts == [plain.properties["__BORNHOST"]]
    theirs_are_read(sent, plain, grouped, later)
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        same = Message(topics["fifo"], b"ours", sharding_key="order-1")
        assert producer.send(same, select=select_like_proxy).message_queue == grouped[0].queue
        assert producer.send(same).message_queue != grouped[0].queue
        properties = {"region": "são paulo"}
        ours = [
            producer.send(Message(topics["ours"], "中".encode(), tags="paid", keys=["a", "b"], properties=properties)),
            producer.send(Message(topics["ours"], b"large " * 2000)),
        ]
    seen = run(tmp_path, "receive", endpoint, topics["ours"], group, str(len(ours)))
    seen.sort(key=lambda message: len(message["body"]))
    assert [message["id"] for message in seen] == [result.msg_id for result in ours]
    assert [message["body"] for message in seen] == ["中", "large " * 2000]
    assert (seen[0]["tag"], seen[0]["keys"], seen[0]["properties"]) == ("paid", ["a", "b"], properties)


def theirs_are_read(
    sent: list[dict[str, Any]], plain: MessageExt, grouped: list[MessageExt], later: MessageExt
) -> None:
    assert [each["form"] for each in sent] == ["plain", "grouped", "grouped", "grouped", "delayed"]
    assert [each["id"] for each in sent] == [each.msg_id for each in (plain, *grouped, later)]
    assert (plain.body.decode(), plain.tags, plain.keys) == ("plain 中", "paid", "order-1")
    assert plain.user_properties == {"region": "são paulo"}
    assert {"PGROUP", "BORN_TIMESTAMP", "__BORNHOST"} <= plain.properties.keys()
    assert [each.body for each in grouped] == [b"grouped 0", b"grouped 1", b"grouped 2"]
    assert {each.sharding_key for each in grouped} == {"order-1"}
    assert len({each.queue for each in grouped}) == 1
    assert later.body == b"later"


def test_ours_are_received_in_order_and_when_they_are_due(addresses: tuple[str, str], tmp_path: Path) -> None:
    nameserver, endpoint = addresses
    word = uuid.uuid4().hex[:8]
    fifo, later, group = f"fifo_{word}", f"later_{word}", f"readers_{word}"
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for topic, kind in ((fifo, "FIFO"), (later, "DELAY")):
            admin.create_topic(topic, queues=QUEUES, attributes={"message.type": kind})
        admin.groups.create(group)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        for number in range(5):
            producer.send(Message(fifo, b"%d" % number, sharding_key="order-1"), select=select_like_proxy)
        producer.send(Message(later, b"later", deliver_at=due))
    seen = run(tmp_path, "receive", endpoint, fifo, group, "5")
    assert [message["body"] for message in seen] == ["0", "1", "2", "3", "4"]
    assert {message["group"] for message in seen} == {"order-1"}
    (delayed,) = run(tmp_path, "receive", endpoint, later, group, "1")
    assert (delayed["body"], delayed["due_ms"]) == ("later", round(due.timestamp() * 1000))


def test_one_group_of_both_receives_each_message_once(addresses: tuple[str, str], tmp_path: Path) -> None:
    nameserver, endpoint = addresses
    word = uuid.uuid4().hex[:8]
    topic, group = f"shared_{word}", f"both_{word}"
    with Admin(nameserver=nameserver, timeout=20) as admin:
        admin.create_topic(topic, queues=4, attributes={"message.type": "NORMAL"})
        admin.groups.create(group)
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        sent = [producer.send(Message(topic, b"%d" % number)).msg_id for number in range(100)]
    ours: list[str] = []
    with PopConsumer(group, nameserver=nameserver, timeout=20) as consumer:

        def receive(count: int) -> None:
            while len(ours) < count:
                for delivery in consumer.receive(topic, 8):
                    with delivery as message:
                        ours.append(message.msg_id)

        receive(10)
        theirs = [message["id"] for message in run(tmp_path, "receive", endpoint, topic, group, "40")]
        receive(len(sent) - len(theirs))
    assert sorted(ours + theirs) == sorted(sent)
