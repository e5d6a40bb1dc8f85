"""Batch topics: when a batch carries the properties that make it one record; no other topic gets such a batch."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Admin, Client, InvalidArgument, Message, MessageQueue, Producer, SendWindow
from pyrmq_core.client.producer.send.send_options import AnyQueue
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.embedded import PASS, EmbeddedCluster, Pass
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.batch_payloads import encode_batch
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.broker.topic_admin import TopicConfigFound
from tests.client.test_broker_versions import V4_9_7, of_version
from tests.support.scripted import BATCH, Step, answer, cut, refuse, silence
from tests.support.stage import Stage

ASK = RequestCode.GET_TOPIC_CONFIG
A0 = MessageQueue("orders", "broker-a", 0)


def reported(attributes: dict[str, str]) -> Step:
    return answer(TopicConfigFound(TopicConfig("orders", 4, 4, attributes=attributes)).to_command())


BATCH_TOPIC, PLAIN_TOPIC = reported({"queue.type": "BatchCQ"}), reported({})


def everywhere(stage: Stage, step: Step) -> None:
    for server in stage.brokers.values():
        server.always(ASK, step)


def messages(*tags: str | None) -> list[Message]:
    return [Message("orders", b"%d" % number, tags=tag) for number, tag in enumerate(tags)]


def requests(stage: Stage) -> list[tuple[dict[str, str], list[tuple[str, str | None]]]]:
    """Returns each batch's own properties, and body and tag of its messages."""
    matching = []
    for _, sent in stage.sends():
        assert sent.batch
        inner = [
            (bytes(item.body).decode(), decode_properties(item.properties.decode()).get("TAGS"))
            for item in iterate_batch_body(sent.body)
        ]
        matching.append((decode_properties(sent.properties or ""), inner))
    return matching


def requested(stage: Stage) -> int:
    return sum(len(server.of(ASK)) for server in stage.brokers.values())


async def test_a_batch_to_a_batch_topic_is_named_and_carries_its_tag(stage: Stage, client: Client) -> None:
    everywhere(stage, BATCH_TOPIC)
    async with Producer("g", client=client) as producer:
        await producer.send_batch(messages("a", "a"), queue=A0)
        await producer.send_batch(messages(None, None), queue=A0)
    (tagged, _), (plain, _) = requests(stage)
    assert set(tagged) == {"UNIQ_KEY", "TAGS"}
    assert tagged["TAGS"] == "a"
    assert set(plain) == {"UNIQ_KEY"}
    assert tagged["UNIQ_KEY"] != plain["UNIQ_KEY"]
    assert requested(stage) == 1


@pytest.mark.parametrize(
    "step",
    [PLAIN_TOPIC, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), refuse(ResponseCode.NO_PERMISSION), cut],
)
async def test_no_other_topic_gets_its_name(stage: Stage, client: Client, step: Step) -> None:
    """A plain topic, a broker of 4.9, one that does not report its settings, one that cuts the connection instead."""
    everywhere(stage, step)
    async with Producer("g", client=client) as producer:
        await producer.send_batch(messages("a", "a"), queue=A0)
        await producer.send_batch(messages("a", "b"), queue=A0)
    assert [own for own, _ in requests(stage)] == [{}, {}]


async def test_a_broker_whose_version_is_known_to_be_old_is_not_even_asked(stage: Stage, client: Client) -> None:
    of_version(stage, V4_9_7)
    everywhere(stage, BATCH_TOPIC)
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        await stage.heard_of()
        await producer.send_batch(messages("a", "a"))
    assert requested(stage) == 0
    assert stage.sends()[-1][1].properties in (None, "")


async def test_a_broker_that_is_silent_about_it_is_waited_for_once(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(ASK, silence)
    async with Producer("g", client=client, send_timeout=0.5) as producer:
        for _ in range(2):
            await producer.send_batch(messages("a", "a"), queue=A0)
    assert len(stage.brokers["broker-a"].of(ASK)) == 1
    assert len(stage.sends()) == 2


async def test_it_is_asked_again_when_the_route_is(stage: Stage, client: Client) -> None:
    """The topic was deleted, and made again as the other kind."""
    everywhere(stage, BATCH_TOPIC)
    async with Producer("g", client=client) as producer:
        await producer.send_batch(messages("a", "a"), queue=A0)
        everywhere(stage, PLAIN_TOPIC)
        await producer.send_batch(messages("a", "a"), queue=A0)
        await client._session.routes.refresh("orders")
        await producer.send_batch(messages("a", "a"), queue=A0)
    assert ["UNIQ_KEY" in own for own, _ in requests(stage)] == [True, True, False]


async def test_each_broker_has_a_say(stage: Stage, client: Client) -> None:
    """The topic is a batch topic on one broker alone: a repeated send obeys the broker that it goes to."""
    stage.brokers["broker-a"].always(ASK, BATCH_TOPIC)
    stage.brokers["broker-b"].always(ASK, PLAIN_TOPIC)
    stage.brokers["broker-a"].on(BATCH, refuse(ResponseCode.SYSTEM_BUSY), refuse(ResponseCode.SYSTEM_BUSY))
    async with Producer("g", client=client) as producer:
        window: SendWindow
        async with producer.open_window() as window:
            await window.put(encode_batch(messages("a"), unique_ids(1)), AnyQueue(A0))
            await window.drain()
    kinds = [(broker, "UNIQ_KEY" in decode_properties(sent.properties or "")) for broker, sent in stage.sends()]
    assert kinds == [("broker-a", True), ("broker-b", False)]


async def test_repeats_carry_the_same_name(stage: Stage, client: Client) -> None:
    everywhere(stage, BATCH_TOPIC)
    for server in stage.brokers.values():
        server.on(BATCH, refuse(ResponseCode.SYSTEM_BUSY))
    async with Producer("g", client=client) as producer:
        await producer.send_batch(messages("a", "a"))
    names = [own["UNIQ_KEY"] for own, _ in requests(stage)]
    assert len(names) > 1
    assert len(set(names)) == 1


async def test_a_list_goes_apart_by_tag_and_its_results_stand_in_its_order(stage: Stage, client: Client) -> None:
    everywhere(stage, BATCH_TOPIC)
    given = messages("a", None, "b", "a", None, "a")
    async with Producer("g", client=client) as producer:
        results = await producer.send_batch(given, queue=A0)
    assert [inner for _, inner in requests(stage)] == [
        [("0", "a"), ("3", "a"), ("5", "a")],
        [("1", None), ("4", None)],
        [("2", "b")],
    ]
    assert [own.get("TAGS") for own, _ in requests(stage)] == ["a", None, "b"]
    stored = {message.unique_id: message.body for message in stage.stored("orders")}
    assert [stored[result.msg_id] for result in results] == [message.body for message in given]


async def test_a_list_of_many_tags_stays_together_on_a_plain_topic(stage: Stage, client: Client) -> None:
    everywhere(stage, PLAIN_TOPIC)
    async with Producer("g", client=client) as producer:
        await producer.send_batch(messages("a", "b", "a"))
    assert [inner for _, inner in requests(stage)] == [[("0", "a"), ("1", "b"), ("2", "a")]]


async def test_compressed_or_mixed_batches_are_left_to_be_taken_apart(stage: Stage, client: Client) -> None:
    everywhere(stage, BATCH_TOPIC)
    mixed = encode_batch(messages("a", "b"), unique_ids(2))
    compressed = encode_batch(messages("a", "a"), unique_ids(2), compression=CompressionType.ZLIB)
    large = Payload("orders", encode_batch(messages("a"), unique_ids(1)).body, 32_768, "", batch=True, single_tag=True)
    async with Producer("g", client=client) as producer, producer.open_window() as window:
        for payload in (mixed, compressed, large):
            await window.put(payload, AnyQueue())
        await window.drain()
    assert [sent.properties or "" for _, sent in stage.sends()] == ["", "", ""]


async def test_automatic_batches_and_record_batches(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    everywhere(stage, BATCH_TOPIC)
    tags = ["a", "b", "a"] * 20
    rows = pa.RecordBatch.from_pydict({"body": [str(number) for number in range(60)], "tags": tags})
    async with Producer("g", client=client, batching=True, compress_body_over_bytes=0) as producer:
        await producer.send_arrow(rows, topic="orders", queue=A0)
    assert [(own["TAGS"], len(inner)) for own, inner in requests(stage)] == [("a", 40), ("b", 20)]
    assert {sent.sys_flag for _, sent in stage.sends()} == {0}
    async with Producer("h", client=client, batching=True) as producer:
        pendings = [await producer.send_soon(message, queue=A0) for message in messages("a", "b", "a", "b")]
        for pending in pendings:
            await pending.wait()
    assert sorted((own["TAGS"], len(inner)) for own, inner in requests(stage)[2:]) == [("a", 2), ("b", 2)]


async def test_the_answer_of_one_record(stage: Stage, client: Client) -> None:
    """One offset id, the first offset, and the record's name; each message keeps its own id."""
    everywhere(stage, BATCH_TOPIC)
    offset_id = "7F00000100002A9F0000000000000A00"
    stored = MessageStored(offset_id, 0, 700, transaction_id="NAME", batch_uniq_id="NAME").to_command()
    stage.brokers["broker-a"].always(BATCH, answer(stored))
    async with Producer("g", client=client) as producer:
        results = await producer.send_batch(messages("a", "a", "a"), queue=A0)
    assert [result.queue_offset for result in results] == [700, 701, 702]
    assert {result.offset_msg_id for result in results} == {offset_id}
    assert len({result.msg_id for result in results}) == 3


async def test_many_senders_ask_once(stage: Stage, client: Client) -> None:
    everywhere(stage, BATCH_TOPIC)
    async with Producer("g", client=client) as producer, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(_send, producer, messages("a", "a"))
    assert requested(stage) == 1
    assert len(stage.sends()) == 20


async def _send(producer: Producer, given: Sequence[Message]) -> None:
    await producer.send_batch(given, queue=A0)


async def test_single_messages_are_sent_as_ever(stage: Stage, client: Client) -> None:
    everywhere(stage, BATCH_TOPIC)
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x", tags="a"))
    ((_, sent),) = stage.sends()
    assert not sent.batch
    assert requested(stage) == 0


async def test_the_topic_of_a_namespace_is_asked_about_as_brokers_name_it(stage: Stage, client: Client) -> None:
    stage.topic("ns%orders")
    everywhere(stage, BATCH_TOPIC)
    async with Producer("g", client=client, namespace="ns") as producer:
        await producer.send_batch(messages("a", "a"), queue=A0)
    (question,) = stage.brokers["broker-a"].of(ASK)
    assert question.ext["topic"] == "ns%orders"
    assert [own["TAGS"] for own, _ in requests(stage)] == ["a"]


async def test_a_batch_topic_is_made_where_brokers_have_them() -> None:
    """A broker of 4.9 is refused before anything is made, and no topic changes from one kind to the other."""
    async with EmbeddedCluster(brokers=2) as cluster, Admin(nameserver=cluster.nameserver) as admin:

        async def unknown(request: Command, peer: Peer) -> Command:
            return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 351 not supported")

        async def seen(request: Command, peer: Peer) -> Pass:
            return PASS

        creations = cluster.control(RequestCode.UPDATE_AND_CREATE_TOPIC, seen)
        old = cluster.control(ASK, unknown, server="broker-b")
        with pytest.raises(InvalidArgument, match=r"was not made: broker-b .* is older than 5\.0"):
            await admin.create_topic("orders", batch=True)
        assert creations.seen == []
        old.remove()
        await admin.create_topic("orders", queues=2, batch=True)
        await admin.create_topic("orders", queues=3, batch=True)
        configs = (await admin.topic_config("orders")).values()
        assert [(config.write_queue_nums, config.attributes["queue.type"]) for config in configs] == [
            (3, "BatchCQ")
        ] * 2
        await admin.create_topic("plain", queues=1)
        with pytest.raises(InvalidArgument, match=r"exists on broker-a .* as a plain topic, and stays one"):
            await admin.create_topic("plain", batch=True)
