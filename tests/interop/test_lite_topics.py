"""Lite topics on 5.5.0: the program that tests/client/test_lite_topics.py runs on our brokers, and a store of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pyrmq_core.protocol.messages.lite_topics import lite_queue_name, with_lite_offsets
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from tests.interop.test_store_files import OPENED, ours
from tests.support.apache import NEWEST, ApacheCluster, ask, boot_broker, boot_cluster
from tests.support.lite_topic_jobs import SETTINGS, each_lite_topic_has_its_messages_in_order
from tests.support.maven import ApacheUnavailable
from tests.support.store_jobs import QUEUES, message, wait_end

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    try:
        with boot_cluster(NEWEST, ("broker-a", "broker-b"), broker_settings=SETTINGS) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def test_each_lite_topic_has_its_messages_in_order(cluster: ApacheCluster, caplog: pytest.LogCaptureFixture) -> None:
    each_lite_topic_has_its_messages_in_order(cluster.nameserver.address)
    assert "stores messages for lite topics" not in caplog.text


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_store_goes_from_broker_to_broker(kill: bool) -> None:
    """Each finds the other's lite topics, and goes on in them."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster(NEWEST, ()))
        except ApacheUnavailable as reason:
            pytest.skip(str(reason))
        directory = cluster.home / "store"
        places = {"storePathRootDir": str(directory), "storePathCommitLog": str(directory / "commitlog"), **SETTINGS}
        for turn in range(3):
            if turn % 2 == 0:
                with ours(directory, kill=kill, **SETTINGS) as address:
                    take_turn(address, turn)
            else:
                nameserver = cluster.nameserver.address
                with boot_broker(NEWEST, nameserver, settings=places, java_options=OPENED) as broker:
                    take_turn(broker.address, turn)
                    if not kill:
                        broker.terminate()


def take_turn(address: str, turn: int) -> None:
    """Sends two messages of each of two lite topics, and reads all of them."""
    if not turn:
        creation = UpdateTopic("T", QUEUES, QUEUES, 6, attributes="+message.type=LITE")
        assert ask(address, creation.to_command()).code == 0
    for number in range(4):
        body, properties = b"%d" % (4 * turn + number), f"__LITE_TOPIC\x01s-{number % 2}\x02"
        assert ask(address, message("T", number, body, properties).to_command()).code == 0
    for number in (0, 1):
        name = lite_queue_name("T", f"s-{number}")
        wait_end(address, name, 0, 2 * (turn + 1))
        answer = PullAnswer.from_command(ask(address, PullMessage("G", name, 0, 0, 32).to_command()))
        records = list(iterate_records(with_lite_offsets(answer.records, name)))
        assert [(record.queue_offset, record.body) for record in records] == [
            (offset, b"%d" % (2 * offset + number)) for offset in range(2 * (turn + 1))
        ]
