"""Messages looked up by id and by key, and the age of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyrmq_core import (
    Admin,
    Client,
    InvalidArgument,
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    ProtocolError,
    ResponseError,
    blocking,
)
from pyrmq_core.client.admin.message_queries import MessageList
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage, ViewMessage
from tests.support.scripted import answer, refuse
from tests.support.stage import Stage

QUERY, VIEW = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID
NOT_FOUND = refuse(22, "can not find message, maybe time range not correct")


def stored(place: int, keys: str = "k1 k2", topic: str = "orders", unique: str = "", store_ms: int = 1000) -> bytes:
    return encode_record(
        topic=topic,
        queue_id=2,
        queue_offset=place // 100,
        commit_log_offset=place,
        body=b"at %d" % place,
        properties=f"KEYS\x01{keys}\x02" + (f"UNIQ_KEY\x01{unique}\x02" if unique else ""),
        born_timestamp_ms=store_ms,
        born_host="127.0.0.1:5000",
        store_timestamp_ms=store_ms,
        store_host="127.0.0.1:10911",
    )


def found(*records: bytes) -> Command:
    return MessagesFound(5, 6, b"".join(records)).to_command()


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with Admin(client=client) as admin:
        yield admin


async def test_a_key_is_looked_up_on_every_broker(stage: Stage, admin: Admin) -> None:
    """The index goes by hashes: records of another key or topic are passed over, as Java does."""
    a, b = stage.brokers.values()
    a.always(QUERY, answer(found(stored(300, store_ms=3000), stored(400, keys="k11"))))
    b.always(QUERY, answer(found(stored(100, store_ms=2000), stored(200, topic="other"))))
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    end = begin + timedelta(milliseconds=5)
    messages = (await admin.messages.by_key("orders", "k1", max_num=7, begin=begin, end=end)).messages
    assert [(message.commit_log_offset, message.broker_name, message.body) for message in messages] == [
        (100, "broker-b", b"at 100"),
        (300, "broker-a", b"at 300"),
    ]
    assert messages[0].queue_id == 2
    for broker in (a, b):
        (request,) = broker.of(QUERY)
        assert "_UNIQUE_KEY_QUERY" not in request.ext
        begin_ms = 1577836800000
        assert QueryMessage.from_command(request) == QueryMessage(
            "orders", "k1", 7, begin_ms, begin_ms + 5, index_type="K"
        )


async def test_without_times_all_are_looked_up(stage: Stage, admin: Admin) -> None:
    for broker in stage.brokers.values():
        broker.always(QUERY, NOT_FOUND)
    assert await admin.messages.by_key("orders", "k1") == MessageList((), {})
    (request,) = stage.brokers["broker-a"].of(QUERY)
    assert QueryMessage.from_command(request) == QueryMessage("orders", "k1", 32, 0, 2**63 - 1, index_type="K")


async def test_a_unique_key_has_one_message(stage: Stage, admin: Admin) -> None:
    a, b = stage.brokers.values()
    a.always(QUERY, NOT_FOUND)
    b.always(QUERY, answer(found(stored(100, unique="OTHER"), stored(200, unique="MINE"))))
    (message,) = (await admin.messages.by_unique_key("orders", "MINE")).messages
    assert (message.msg_id, message.commit_log_offset) == ("MINE", 200)
    request = b.of(QUERY)[0]
    assert QueryMessage.from_command(request) == QueryMessage("orders", "MINE", 32, 0, 2**63 - 1, index_type="U")
    assert "_UNIQUE_KEY_QUERY" not in request.ext
    assert await admin.messages.by_unique_key("orders", "THEIRS") == MessageList((), {})


async def test_a_broker_that_refuses_is_not_passed_over(stage: Stage, admin: Admin) -> None:
    stage.brokers["broker-a"].always(QUERY, answer(found(stored(100))))
    stage.brokers["broker-b"].always(QUERY, refuse(1, "the index is damaged"))
    listed = await admin.messages.by_key("orders", "k1")
    assert [message.body for message in listed.messages] == [b"at 100"]
    with pytest.raises(ResponseError, match=r"broker-b \(.*\) answered QUERY_MESSAGE.*for topic orders.*is damaged"):
        raise listed.failures["broker-b"]
    stage.brokers["broker-a"].always(QUERY, refuse(1, "the index is damaged"))
    with pytest.raises(ResponseError, match=r"answered QUERY_MESSAGE.*for topic orders.*is damaged"):
        await admin.messages.by_key("orders", "k1")


async def test_a_message_is_viewed_at_the_address_in_its_id(stage: Stage, admin: Admin) -> None:
    broker = stage.brokers["broker-a"]
    port = int(broker.address.rpartition(":")[2])
    msg_id = offset_msg_id(b"\x7f\0\0\1", port, 500)
    broker.always(VIEW, answer(Command(0, body=stored(500))))
    await admin.route("orders")
    message = await admin.messages.by_id(msg_id, topic="orders")
    assert (message.body, message.broker_name, message.queue_id) == (b"at 500", "broker-a", 2)
    assert ViewMessage.from_command(broker.of(VIEW)[0]) == ViewMessage(500, "orders")
    broker.always(VIEW, answer(Command(0, body=stored(501))))
    with pytest.raises(ProtocolError, match="another message than"):
        await admin.messages.by_id(msg_id)
    broker.always(VIEW, answer(Command(0, body=b"")))
    with pytest.raises(ProtocolError, match="another message than"):
        await admin.messages.by_id(msg_id)
    broker.always(VIEW, answer(Command(0, body=stored(500)[:-3])))
    with pytest.raises(ProtocolError):
        await admin.messages.by_id(msg_id)


async def test_a_tenants_messages(stage: Stage, client: Client) -> None:
    stage.topic("NS%bills")
    for broker in stage.brokers.values():
        broker.always(QUERY, answer(found(stored(100, topic="NS%bills"), stored(200, topic="bills"))))
    async with Admin(client=client, namespace="NS") as admin:
        messages = (await admin.messages.by_key("bills", "k1")).messages
        with pytest.raises(NoRoute, match="topic: missing"):
            await admin.messages.by_key("missing", "k1")
    assert [(message.topic, message.commit_log_offset) for message in messages] == [("bills", 100), ("bills", 100)]
    assert {broker.of(QUERY)[0].ext["topic"] for broker in stage.brokers.values()} == {"NS%bills"}


async def test_wrong_arguments_are_named(admin: Admin) -> None:
    number: Any = 3
    for call, words in (
        (lambda: admin.messages.by_id("xyz"), "'xyz' is no offset message id"),
        (lambda: admin.messages.by_id(number), "offset_msg_id=3"),
        (lambda: admin.messages.by_key("orders", ""), "key=''"),
        (lambda: admin.messages.by_key("orders", "  "), "key='  ': it is spaces alone"),
        (lambda: admin.messages.by_key("orders", "k", max_num=0), "max_num=0"),
        (lambda: admin.messages.by_key("orders", "k", begin=datetime(2020, 1, 1)), "begin=.*has no time zone"),
        (lambda: admin.messages.by_key("a b", "k"), "a b"),
        (lambda: admin.messages.by_unique_key("orders", number), "unique_key=3"),
        (lambda: admin.messages.earliest_store_time(number), "queue=3"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            await call()


async def test_on_our_broker() -> None:
    async with (
        EmbeddedCluster() as cluster,
        Client(nameserver=cluster.nameserver) as client,
        Admin(client=client) as admin,
        Producer("g", client=client) as producer,
    ):
        await admin.create_topic("orders", queues=1)
        result = await producer.send(Message("orders", b"x", keys="k other"))
        nothing = MessageList((), {})
        message = await admin.messages.by_id(result.offset_msg_id)
        assert await admin.messages.by_key("orders", "k") == MessageList((message,), {})
        assert await admin.messages.by_key("orders", "k", end=message.store_timestamp - timedelta(hours=1)) == nothing
        assert await admin.messages.by_unique_key("orders", result.msg_id) == MessageList((message,), {})
        assert await admin.messages.by_unique_key("orders", "other") == nothing
        assert (message.body, message.msg_id, message.queue_offset) == (b"x", result.msg_id, 0)
        assert await admin.messages.earliest_store_time(result.message_queue) == message.store_timestamp
        with pytest.raises(ResponseError, match="can not find message by the offset"):
            await admin.messages.by_id(result.offset_msg_id[:-1] + "F")


def test_the_blocking_face() -> None:
    with (
        blocking.EmbeddedCluster() as cluster,
        blocking.Client(nameserver=cluster.nameserver) as client,
        blocking.Admin(client=client) as admin,
        blocking.Producer("g", client=client) as producer,
    ):
        admin.create_topic("orders", queues=1)
        queue = MessageQueue("orders", "broker-a", 0)
        assert admin.messages.earliest_store_time(queue) is None
        result = producer.send(Message("orders", b"x"))
        assert admin.messages.by_id(result.offset_msg_id, topic="orders").body == b"x"
        assert admin.messages.by_id(result.offset_msg_id).msg_id == result.msg_id
        with pytest.raises(ResponseError):
            admin.messages.by_id(result.offset_msg_id[:-1] + "F")
