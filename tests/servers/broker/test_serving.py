"""Requests over sockets: sends and pulls, topics created by sends, pulls that wait, delays, retries, and refusals."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pyrmq_core.client.producer.send.retry_policy import outcome_of
from pyrmq_core.errors import InvalidArgument, NetworkError, Outcome, StoreError
from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import StoredRecord, decode_record, iterate_records
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues, UnlockQueues
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic, GetTopicConfig, TopicConfigFound, UpdateTopic
from pyrmq_core.servers.embedded.forgetful_files import cut_power
from tests.servers.broker.serving import NOW_MS, Served, config, message, serving, until


def records(answer: PullAnswer) -> list[StoredRecord]:
    return list(iterate_records(answer.records, check_crc=True))


async def max_offset(served: Served, topic: str, queue_id: int = 0) -> int:
    return OffsetFound.from_command(await served.ask(GetMaxOffset(topic, queue_id).to_command())).offset


async def test_a_message_comes_back_with_what_the_broker_adds(tmp_path: Path) -> None:
    async with serving(tmp_path, brokerClusterName="C1") as served:
        stored = MessageStored.from_command(
            await served.send("T", b"hello", "TAGS\x01a\x02x\x011\x02x\x012\x02e\x01\x02")
        )
        (record,) = records(await served.pull("T"))
        properties = decode_properties(record.properties)
        assert (record.body, record.queue_offset, record.born_timestamp_ms) == (b"hello", 0, NOW_MS)
        assert record.store_host == served.running.address
        assert properties.pop("UNIQ_KEY") == stored.transaction_id
        assert properties == {
            "TAGS": "a",
            "x": "2",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "C1",
        }
        view = await served.ask(Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(int(stored.msg_ids[-16:], 16))}))
        assert decode_record(view.body) == record


async def test_a_batch_becomes_single_records(tmp_path: Path) -> None:
    items = [BatchItem(number, b"%d" % number, b"UNIQ_KEY\x01U%d\x02" % number) for number in range(50)]
    batch = replace(message("T", encode_batch_body(items)), batch=True)
    async with serving(tmp_path) as served:
        stored = MessageStored.from_command(await served.ask(batch.to_command()))
        singles = records(await served.pull("T")) + records(await served.pull("T", offset=32))
        assert [record.body for record in singles] == [item.body for item in items]
        assert [record.properties.encode() for record in singles] == [item.properties for item in items]
        ids = stored.msg_ids.split(",")
        assert [int(message_id[-16:], 16) for message_id in ids] == [record.commit_log_offset for record in singles]
        assert (stored.queue_offset, stored.transaction_id) == (0, None)


async def test_a_new_topic_has_the_smaller_number_of_queues(tmp_path: Path) -> None:
    async with serving(tmp_path, defaultTopicQueueNums="6") as served:
        for target, expected in ((4, 4), (16, 6)):
            await served.ask(replace(message(f"T{target}"), default_topic_queue_nums=target).to_command())
            answer = await served.ask(GetTopicConfig(f"T{target}").to_command())
            topic = TopicConfigFound.from_command(answer).config
            assert topic == TopicConfig(f"T{target}", expected, expected, 6)


@pytest.mark.parametrize("settings", [{"autoCreateTopicEnable": "false"}, {}])
async def test_without_auto_creation_a_topic_is_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    async with serving(tmp_path, clusterTopicEnable="false", brokerTopicEnable="false", **settings) as served:
        default = "TBW102" if settings else "DefaultCluster"
        answer = await served.ask(replace(message("T"), default_topic=default).to_command())
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (answer.remark or "").startswith("topic[T] not exist, apply first please!")


async def test_a_held_pull_is_answered_when_a_message_comes(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        await served.send("T", b"first")
        answers: list[PullAnswer] = []

        async def pull() -> None:
            answers.append(await served.pull("T", offset=1, wait_ms=60_000))

        nursery.start_soon(pull)
        await until(lambda: served.running.broker.clients.held.count == 1)
        await served.send("T", b"other queue", queue_id=1)
        assert served.running.broker.clients.held.count == 1
        await served.send("T", b"second")
        await until(lambda: bool(answers))
        assert [record.body for record in records(answers[0])] == [b"second"]
        assert served.running.broker.clients.held.count == 0


async def test_a_held_pull_waits_for_its_tag_and_no_longer_than_it_may(tmp_path: Path) -> None:
    pull = PullMessage("G", "T", 0, 1, 32, 6, suspend_timeout_ms=3000, subscription="b || c")
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        await served.send("T")
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await served.ask(pull.to_command()))

        nursery.start_soon(ask)
        await until(lambda: served.running.broker.clients.held.count == 1)
        await served.send("T", properties="TAGS\x01a\x02")
        await until(lambda: bool(answers))
        assert answers[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answers[0].ext["nextBeginOffset"] == "2"


async def test_a_closed_connection_takes_its_held_pulls_along(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        await served.send("T")

        async def ask() -> None:
            with pytest.raises(NetworkError):
                await served.pull("T", offset=1, wait_ms=60_000)

        nursery.start_soon(ask)
        await until(lambda: served.running.broker.clients.held.count == 1)
        served.pool.close(served.running.address)
        await until(lambda: served.running.broker.clients.held.count == 0)


async def test_no_more_pulls_are_held_than_set(tmp_path: Path) -> None:
    async with serving(tmp_path, maxHeldPulls="0") as served:
        await served.send("T")
        assert (await served.pull("T", offset=1, wait_ms=60_000)).code == ResponseCode.PULL_NOT_FOUND


async def test_limits_of_one_answer(tmp_path: Path) -> None:
    limits = {"maxTransferCountOnMessageInMemory": "40", "maxTransferBytesOnMessageInMemory": "30000"}
    async with serving(tmp_path, **limits) as served:
        for _ in range(50):
            await served.send("T", b"small")
        assert len(records(await served.pull("T"))) == 32
        for size in (40_000, 10_000, 10_000, 10_000):
            await served.send("T", b"x" * size, queue_id=1)
        counts = [len(records(await served.pull("T", 1, offset))) for offset in range(3)]
        assert counts == [1, 2, 2]


async def test_tags_are_filtered_by_their_hash(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for tag in ("Aa", "BB", "b", "Aa", ""):  # Aa and BB have one hash
            await served.send("T", properties=f"TAGS\x01{tag}\x02" if tag else "")
        pull = PullMessage("G", "T", 0, 0, 32, 4, subscription="Aa")
        answer = PullAnswer.from_command(await served.ask(pull.to_command()))
        assert [record.queue_offset for record in records(answer)] == [0, 1, 3]
        assert answer.next_begin_offset == 5


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_delayed_message_waits_in_its_level_and_comes_as_it_was(tmp_path: Path, flush: str) -> None:
    async with serving(tmp_path, messageDelayLevel="1s 2s", flushDiskType=flush) as served:
        await served.send("T", b"now")
        stored = MessageStored.from_command(await served.send("T", b"later", "DELAY\x019\x02TAGS\x01a\x02", 2))
        assert stored.queue_id == 2
        assert await max_offset(served, "T", 2) == 0
        assert await max_offset(served, "SCHEDULE_TOPIC_XXXX", 1) == 1
        (record,) = records(await served.pull("T", 2, wait_ms=9000))
        properties = decode_properties(record.properties)
        assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == ("2", "T", "2")
        assert 1900 < record.store_timestamp_ms - served.running.broker.identity.booted_ms < 9000
        assert (record.body, record.born_timestamp_ms, record.queue_id) == (b"later", NOW_MS, 2)


async def test_delayed_messages_survive_a_kill(tmp_path: Path) -> None:
    settings = {"messageDelayLevel": "1s 1h"}
    async with serving(tmp_path, **settings) as served:
        await served.send("T", b"soon", "DELAY\x011\x02")
        await served.send("T", b"in an hour", "DELAY\x012\x02")
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path, **settings) as served:
        deliveries = records(await served.pull("T", wait_ms=9000))
        assert [record.body for record in deliveries] == [b"soon"]
        assert await max_offset(served, "SCHEDULE_TOPIC_XXXX", 1) == 1
    async with serving(tmp_path, **settings) as served:
        assert await max_offset(served, "T") == 1


@pytest.mark.parametrize(
    "inside", ["DELAY\x013", "TIMER_DELAY_SEC\x015", "TIMER_DELAY_MS\x015", "TIMER_DELIVER_MS\x011"]
)
async def test_a_delayed_message_in_a_batch_is_never_stored_at_once(tmp_path: Path, inside: str) -> None:
    items = encode_batch_body([BatchItem(0, b"1", f"{inside}\x02".encode())])
    async with serving(tmp_path) as served:
        answer = await served.ask(replace(message("T", items), batch=True).to_command())
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        refused = response_error(answer, RequestCode.SEND_MESSAGE_V2, "here:1")
        assert outcome_of(refused) is Outcome.NOT_STORED
        assert await max_offset(served, "T") == 0


async def test_dead_letters_with_delay_zero_are_sent_again_in_a_batch(tmp_path: Path) -> None:
    items = encode_batch_body([BatchItem(0, b"1", b"DELAY\x010\x02")])
    async with serving(tmp_path) as served:
        answer = await served.ask(replace(message("T", items), batch=True).to_command())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        (record,) = records(await served.pull("T"))
        assert (record.body, decode_properties(record.properties)["DELAY"]) == (b"1", "0")


@pytest.mark.parametrize("body", [b"\0\0\0\0" * 6, b"\0\0\0\x30" + b"\0" * 30, b"abc"])
async def test_a_batch_that_cannot_be_read_is_refused_whole(tmp_path: Path, body: bytes) -> None:
    good = encode_batch_body([BatchItem(0, b"1", b"")])
    async with serving(tmp_path) as served:
        answer = await served.ask(replace(message("T", good + body), batch=True).to_command())
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert await max_offset(served, "T") == 0


async def test_a_retry_comes_again_and_ends_among_the_dead_letters(tmp_path: Path) -> None:
    async with serving(tmp_path, messageDelayLevel="1s") as served:
        stored = MessageStored.from_command(await served.send("T", b"hard"))
        back = ConsumerSendMsgBack(int(stored.msg_ids[-16:], 16), "G", 1, max_reconsume_times=1)
        assert (await served.ask(back.to_command())).code == 0
        (again,) = records(await served.pull("%RETRY%G", wait_ms=9000))
        properties = decode_properties(again.properties)
        assert (again.reconsume_times, again.body) == (1, b"hard")
        assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", stored.msg_ids)
        back = replace(back, offset=again.commit_log_offset)
        assert (await served.ask(back.to_command())).code == 0
        (dead,) = records(await served.pull("%DLQ%G"))
        assert (dead.reconsume_times, dead.topic) == (2, "%DLQ%G")
        assert decode_properties(dead.properties)["ORIGIN_MESSAGE_ID"] == stored.msg_ids
        # A consumer that sends its retry itself, once too often.
        own = replace(message("%RETRY%G", b"own"), reconsume_times=3, max_reconsume_times=2)
        assert (await served.ask(own.to_command())).code == 0
        assert [record.body for record in records(await served.pull("%DLQ%G"))] == [b"hard", b"own"]


async def test_a_dead_letter_that_is_refused_is_not_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, metricsExporterType="PROM", metricsPromExporterPort="0") as served:
        dead = replace(message("%RETRY%G"), reconsume_times=3, max_reconsume_times=2)
        assert (await served.ask(replace(dead, body=b"").to_command())).code == ResponseCode.SYSTEM_ERROR
        assert (await served.ask(dead.to_command())).code == ResponseCode.SUCCESS
        measures = served.running.broker.counts.measures
        assert measures is not None
        (family,) = (each for each in measures.families() if each.name == "rocketmq_send_to_dlq_messages_total")
        assert [sample.value for sample in family.samples] == [1]


async def test_a_topic_without_write_queues_takes_no_message_for_any_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.running.broker.tables.topics.put(TopicConfig("T", 4, 0, 6), 0)
        answer = await served.send("T", queue_id=-1)
        assert (answer.code, "topic[T] has no write queue" in (answer.remark or "")) == (
            ResponseCode.SYSTEM_ERROR,
            True,
        )
        assert await max_offset(served, "T") == 0


async def test_a_group_is_notified_of_its_members(tmp_path: Path) -> None:
    subscription = SubscriptionData("T", sub_version=1)
    reported: list[str] = []

    def hear(request: Command, _: Peer) -> Command | None:
        reported.append(f"{request.code} {request.ext['consumerGroup']}")
        return None

    async with serving(tmp_path) as served:
        await served.send("T")
        client = served.another(hear)
        beat = HeartBeat("cid1", ("P",), (ConsumerData("G", subscriptions=(subscription,)),))
        await client.ask(beat.to_command())
        await until(lambda: reported == ["40 G"])
        await client.ask(beat.to_command())
        listed = await served.ask(Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}))
        assert listed.body == b'{"consumerIdList":["cid1"]}'
        pull = PullMessage("G", "T", 0, 0, 32, 0, sub_version=1)
        assert (await served.ask(pull.to_command())).code == 0
        assert (
            await served.ask(replace(pull, sub_version=2).to_command())
        ).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert reported == ["40 G"]
        await client.pool.aclose()
        await until(lambda: not served.running.broker.clients.table.consumers)
        assert (await served.ask(pull.to_command())).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_queue_is_locked_for_one_client(tmp_path: Path) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    async with serving(tmp_path) as served:

        async def take(client_id: str) -> tuple[MessageQueue, ...]:
            answer = await served.ask(LockQueues("G", client_id, (queue,)).to_command())
            return LockedQueues.from_command(answer).queues

        assert await take("a") == (queue,)
        assert await take("b") == ()
        assert await take("a") == (queue,)
        await served.ask(UnlockQueues("G", "b", (queue,)).to_command())
        assert await take("b") == ()
        await served.ask(UnlockQueues("G", "a", (queue,)).to_command())
        assert await take("b") == (queue,)


async def test_a_deleted_topic_begins_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"old")
        assert (await served.ask(DeleteTopic("T").to_command())).code == 0
        assert (await served.ask(PullMessage("G", "T", 0, 0, 32).to_command())).code == ResponseCode.TOPIC_NOT_EXIST
        await served.send("T", b"new")
        assert [record.body for record in records(await served.pull("T"))] == [b"new"]


@pytest.mark.parametrize("attributes", ["+queue.type=OtherCQ", "+cleanup.policy=COMPACTION"])
async def test_queues_of_another_kind_are_refused(tmp_path: Path, attributes: str) -> None:
    async with serving(tmp_path) as served:
        answer = await served.ask(UpdateTopic("T", 1, 1, 6, attributes=attributes).to_command())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        name, _, value = attributes[1:].partition("=")
        assert (answer.remark or "").startswith(f"{name} is {value!r}; ")


async def test_sync_flush_answers_when_the_message_is_on_the_medium(tmp_path: Path) -> None:
    async with serving(tmp_path, flushDiskType="SYNC_FLUSH") as served, trio.open_nursery() as nursery:
        answers: list[Command] = []

        async def send(body: bytes) -> None:
            answers.append(await served.send("T", body))
            assert served.running.broker.store.flushed > 0

        for number in range(20):
            nursery.start_soon(send, b"%d" % number)
        await until(lambda: len(answers) == 20)
        assert {answer.code for answer in answers} == {0}
        cut_power(served.running)
        await served.ended.wait()
    async with serving(tmp_path, flushDiskType="SYNC_FLUSH") as served:
        assert await max_offset(served, "T") == 20


async def test_a_flush_that_takes_too_long_is_reported(tmp_path: Path) -> None:
    async with serving(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout="50") as served:
        await served.send("T")
        release = trio.Event()
        broker = served.running.broker
        unsynced = broker.store.unsynced

        def slow() -> tuple[int, list[object]]:
            end, syncs = unsynced()
            return end, [*syncs, lambda: trio.from_thread.run(release.wait)]

        broker.store.unsynced = slow  # type: ignore[method-assign,assignment]
        answer = await served.send("T", b"slow")
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert MessageStored.from_command(answer).queue_offset == 1
        assert (await served.send("T", b"does not wait", "WAIT\x01false\x02")).code == 0
        release.set()


async def test_a_failed_sync_ends_all_storing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T")
        broker = served.running.broker

        def fail() -> None:
            raise StoreError("cannot sync commitlog: Input/output error")

        broker.store.unsynced = lambda: (broker.store.end, [fail])  # type: ignore[method-assign]
        await until(lambda: bool(broker.services.flusher.failure))
        answer = await served.send("T")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "Input/output error" in (answer.remark or "")


async def test_unknown_codes_are_refused_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for code, name in ((200056, "POP_ROLLBACK"), (9999, "9999")):
            answer = await served.ask(Command(code))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert name in (answer.remark or "")


async def test_a_port_that_is_taken_and_a_directory_that_is_held(tmp_path: Path) -> None:
    async with serving(tmp_path / "a") as served:
        port = served.running.address.rpartition(":")[2]
        with pytest.RaisesGroup(pytest.RaisesExc(NetworkError, match=f"cannot listen on 127.0.0.1:{port}")):
            async with serving(tmp_path / "b", listenPort=port):
                pass


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"brokerRole": "SLAVE"}, "a slave has a brokerId of 1 or more"),
        ({"brokerId": "1"}, "a master has brokerId=0"),
        ({"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "there"}, "haMasterAddress: "),
        ({"inSyncReplicas": "65"}, "1 to 64 are possible"),
        ({"flushDiskType": "NOW"}, "SYNC_FLUSH"),
        ({"listenPort": "x"}, "listenPort is 'x'"),
        ({"listenPort": "-1"}, "listenPort is -1; 0 to 65535 are possible"),
        ({"autoCreateTopicEnable": "maybe"}, "true or false"),
        ({"messageDelayLevel": "1x"}, "1s 5s"),
        ({"timerPrecisionMs": "10"}, "timerPrecisionMs is 10; 100, 200, 500 and 1000"),
        ({"brokerName": ""}, "brokerName"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(tmp_path: Path, settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        config(tmp_path, **settings)
