"""Lines 23 to 29, 72 and 73: the broker's side of routing, how it accepts a message, and batches."""

import json
from dataclasses import replace
from pathlib import Path

import trio

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.servers.protocol.register_broker import RegisterBroker
from tests.servers.broker.nameservers import RecordingNameServer, nameservers
from tests.servers.broker.serving import message, serving


def topics_json(directory: Path) -> dict[str, dict[str, object]]:
    loaded: dict[str, dict[str, object]] = json.loads((directory / "config" / "topics.json").read_text())
    return loaded


async def test_line_23_topics_are_loaded_from_topics_json_under_the_store(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.ask(UpdateTopic.of(TopicConfig("Kept", 3, 2, 6)).to_command())
    written = topics_json(tmp_path)
    assert written["topicConfigTable"]["Kept"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Kept",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert written["dataVersion"]["counter"] == 1
    assert (tmp_path / "config" / "topics.json.bak").exists()
    (tmp_path / "config" / "topics.json").write_text("")  # as a crash may leave it
    async with serving(tmp_path) as served:
        assert served.running.broker.tables.topics.get("Kept") is None  # the version before
    written["topicConfigTable"]["Kept"]["perm"] = 4
    (tmp_path / "config" / "topics.json").write_text(json.dumps(written))
    async with serving(tmp_path) as served:
        assert served.running.broker.tables.topics.get("Kept") == TopicConfig("Kept", 3, 2, 4)


async def test_line_24_all_topics_go_to_all_nameservers_at_start(tmp_path: Path) -> None:
    """The rounds that follow are in tests/servers/broker/test_registration.py."""
    async with (
        nameservers(2) as servers,
        serving(tmp_path, namesrvAddr=";".join(server.address for server in servers)) as served,
    ):
        topics = {topic.topic for topic in served.running.broker.tables.topics}
        assert [server.topics() for server in servers] == [[topics], [topics]]


async def test_line_25_it_registers_at_all_nameservers_at_once_and_none_holds_up_the_rest(tmp_path: Path) -> None:
    async with nameservers(3) as servers:
        for server in servers[:2]:
            server.answers = False
        addresses = ";".join(server.address for server in servers)
        with trio.fail_after(40):
            async with serving(tmp_path, namesrvAddr=addresses, registerBrokerTimeoutMills="2000") as served:
                first = [server.reported[0][0] for server in servers]
                assert max(first) - min(first) < 1.5  # one after another: 2 s each
                assert (await served.send("T")).code == 0


async def test_line_26_a_topic_created_on_the_way_is_registered_at_once(tmp_path: Path) -> None:
    async with nameservers() as (server,), serving(tmp_path, namesrvAddr=server.address) as served:
        await served.send("New")
        assert server.topics()[1:] == [{"New"}]


async def test_line_27_a_message_is_checked_before_it_is_stored(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answers = {
            "reserved": await served.send("SCHEDULE_TOPIC_XXXX"),
            "unknown": await served.ask(replace(message("T"), default_topic="NoSuchTopic").to_command()),
            "created": await served.send("T"),
            "queue": await served.send("T", queue_id=4),
            "retry": await served.ask(replace(message("%RETRY%G"), default_topic="NoSuchTopic").to_command()),
        }
        assert {name: answer.code for name, answer in answers.items()} == {
            "reserved": ResponseCode.NO_PERMISSION,
            "unknown": ResponseCode.TOPIC_NOT_EXIST,
            "created": ResponseCode.SUCCESS,
            "queue": ResponseCode.INVALID_PARAMETER,
            "retry": ResponseCode.SUCCESS,
        }
        assert served.running.broker.tables.topics.get("T") == TopicConfig("T", 4, 4, 6)
        assert served.running.broker.tables.topics.get("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, 6)
    async with serving(tmp_path / "read only", brokerPermission="4") as served:
        await served.ask(UpdateTopic("Ordered", 4, 4, 6, order=True).to_command())
        assert (await served.send("Ordered")).code == ResponseCode.NO_PERMISSION


async def test_line_28_table_then_version_then_file_then_registration(tmp_path: Path) -> None:
    """The registration carries the new version, the file has it already, and the sender is not answered yet."""
    seen: list[tuple[int, object, bool]] = []
    answered = False

    class LookingNameServer(RecordingNameServer):
        async def handle(self, request: Command, peer: Peer) -> Command | None:
            if request.code == RequestCode.REGISTER_BROKER:
                version = RegisterBroker.from_command(request).body().data_version
                seen.append((version.counter, topics_json(tmp_path)["dataVersion"]["counter"], answered))
            return await super().handle(request, peer)

    server = LookingNameServer()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        async with serving(tmp_path, namesrvAddr=server.address) as served:
            await served.send("New")
            answered = True
        nursery.cancel_scope.cancel()
    assert seen == [(0, 0, False), (1, 1, False)]


async def test_line_29_then_the_store_and_a_status(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stored = MessageStored.from_command(await served.send("T", b"x"))
        assert (stored.queue_id, stored.queue_offset, len(stored.msg_ids)) == (0, 0, 32)
        assert (await served.send("T", b"x" * (4 * 1024 * 1024 + 1))).code == ResponseCode.MESSAGE_ILLEGAL
        assert MessageStored.from_command(await served.send("T", b"x" * 4 * 1024 * 1024)).queue_offset == 1


async def test_line_72_a_batch_is_one_request_and_lies_in_one_queue(tmp_path: Path) -> None:
    items = [BatchItem(0, b"%d" % number, b"") for number in range(10)]
    batch = replace(message("T", encode_batch_body(items), queue_id=2), batch=True)
    async with serving(tmp_path) as served:
        for queue_id in (2, 1):
            stored = MessageStored.from_command(await served.ask(replace(batch, queue_id=queue_id).to_command()))
            assert (stored.queue_id, stored.queue_offset, stored.msg_ids.count(",")) == (queue_id, 0, 9)
            records = list(iterate_records((await served.pull("T", queue_id)).records))
            assert [(record.queue_offset, record.body) for record in records] == [
                (number, item.body) for number, item in enumerate(items)
            ]
        retry = await served.ask(replace(batch, topic="%RETRY%G").to_command())
        delayed = await served.ask(replace(batch, properties="DELAY\x011\x02").to_command())
        assert (retry.code, delayed.code) == (ResponseCode.MESSAGE_ILLEGAL,) * 2


async def test_line_73_the_broker_makes_single_records_of_a_batch_all_or_none(tmp_path: Path) -> None:
    items = [BatchItem(number, b"%d" % number, b"TAGS\x01t%d\x02" % number) for number in range(3)]
    whole = encode_batch_body(items)
    async with serving(tmp_path) as served:
        torn = await served.ask(replace(message("T", whole[:-1]), batch=True).to_command())
        assert torn.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await served.pull("T")).max_offset == 0
        await served.ask(replace(message("T", whole), batch=True).to_command())
        records = list(iterate_records((await served.pull("T")).records, check_crc=True))
        assert [(record.flag, record.body, record.properties) for record in records] == [
            (item.flag, item.body, item.properties.decode()) for item in items
        ]
