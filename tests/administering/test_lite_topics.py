"""`Admin.lite_topics` on two brokers of ours: one of them is that to which a lite topic's messages go."""

from __future__ import annotations

import pytest

from pyrmq_core import Message, ResponseError
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from tests.support.lite_topic_jobs import NAMES, SETTINGS

LITE = {"message.type": "LITE", "lite.topic.expiration": "30"}


def test_a_lite_topic_is_at_the_broker_to_which_it_is_sent() -> None:
    with (
        EmbeddedCluster(brokers=("broker-a", "broker-b"), settings=SETTINGS) as cluster,
        Admin(nameserver=cluster.nameserver, timeout=30) as admin,
        Producer("p", nameserver=cluster.nameserver, send_timeout=30) as producer,
    ):
        admin.create_topic("T", queues=3, attributes=LITE)
        sent = [producer.send(Message("T", b"x", lite_topic=name)).message_queue.broker_name for name in NAMES]
        assert len(set(sent)) == 2
        for name, broker in zip(NAMES, sent, strict=True):
            infos = admin.lite_topics.info("T", name).answers
            assert {at for at, info in infos.items() if info.is_assigned} == {broker}
            assert {at: info.offset.max_offset for at, info in infos.items()} == {
                at: int(at == broker) for at in ("broker-a", "broker-b")
            }
        parents = admin.lite_topics.parent("T").answers.values()
        assert sum(info.lite_topics for info in parents) == len(NAMES)
        assert {info.topics["T"] for info in admin.lite_topics.brokers().answers.values()} == {30}
        with pytest.raises(ResponseError, match="is not a LITE group"):
            admin.lite_topics.group("T", "g")
