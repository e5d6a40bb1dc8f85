"""A notebook shows tables of administration with escaped texts, and of a message the beginning of its body."""

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.client.admin.html_tables import MAX_ROWS, TableRows
from pyrmq_core.client.admin.values import GroupList, GroupSummary
from pyrmq_core.errors import BrokerNotFound


def test_tables_of_a_cluster_are_shown_as_html() -> None:
    with EmbeddedCluster(brokers=2, topics={"orders": 2}) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        with PullConsumer("billing", nameserver=cluster.nameserver) as consumer:
            consumer.commit_offsets(dict.fromkeys(consumer.message_queues("orders"), 0))
        tables = {
            "broker_name": admin.brokers.list(),
            "max_offset": admin.topics.stats("orders"),
            "members": admin.groups.list(),
            "consumer_offset": admin.groups.progress("billing"),
            "before": admin.groups.reset("billing", "orders", to="earliest"),
            "client_id": admin.groups.describe("billing"),
        }
        for column, table in tables.items():
            html = table._repr_html_()  # type: ignore[attr-defined]
            if column != "client_id":  # a group without members has no rows
                assert f"<th>{column}</th>" in html
                assert "broker-" in html or "billing" in html
            assert html.count("<table>") == html.count("</table>") == 1


def test_texts_of_peers_are_escaped_and_rows_bounded() -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\ud800"
    group = GroupSummary(hostile, 0, None, None, 0, ("a", "b"), (hostile,))
    html = GroupList((group,), {hostile: BrokerNotFound(hostile, broker_name=hostile)})._repr_html_()
    html.encode()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "no answer of &lt;script&gt;" in html
    many = TableRows([group] * (MAX_ROWS + 7))._repr_html_()
    assert many.count("<tr>") == MAX_ROWS + 1
    assert "<p>and 7 more</p>" in many


@pytest.mark.parametrize("length", [64, 65, 4_000_000])
def test_a_message_shows_the_beginning_of_its_body_and_its_length(length: int) -> None:
    message = Message("orders", b"x" * length, keys="k", properties={"note": "y" * 30_000})
    assert len(repr(message)) < 3000
    assert repr(message).startswith("Message(topic='orders', body=b'xxx")
    assert (f"'... ({length} bytes), " in repr(message)) is (length > 64)
    assert "keys='k'" in repr(message)
    assert "(30012 characters)" in repr(message)


def test_a_stored_message_is_shown_in_the_same_way() -> None:
    with (
        EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        PullConsumer("c", nameserver=cluster.nameserver) as consumer,
    ):
        producer.send(Message("orders", b"z" * 100_000))
        (queue,) = consumer.message_queues("orders")
        (stored,) = consumer.pull(queue, 0).messages
    text = repr(stored)
    assert text.startswith("MessageExt(topic='orders', broker_name='broker-a', queue_id=0, queue_offset=0, body=b'zzz")
    assert "'... (100000 bytes), properties={" in text
    assert len(text) < 2000
