"""Messages sent back, and batches, as requests of a stranger: a broker's answers, and what it stored for each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from pyrmq_core import Client
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.messages.batch import encode_batch_body
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound, UpdateTopic
from tests.support.wire_forms import send_of_code_10

BORN_MS = 1_700_000_000_000
LEVELS = 18
AN_HOUR = 17  # the level of a message that is not delivered while the cases run
TIMEOUT = 30
UPDATE_GROUP = 200
# Not the same on two brokers: ids, addresses, places in the log, and the lines of Java's traces.
MASKED = re.compile(r"(?<=offset failed, )\d+|[0-9A-F]{32}|/?127\.0\.0\.1:\d+|\n.*", re.DOTALL)
GROUP: Mapping[str, Any] = {"consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True}


@dataclass
class Outcomes:
    """One broker's outcomes by case; `own` are the names that no other test has used."""

    client: Client
    topic: str
    group: str
    rows: dict[str, Any] = field(default_factory=dict)

    @property
    def queues(self) -> list[tuple[str, int]]:
        scheduled = [("SCHEDULE_TOPIC_XXXX", level) for level in range(LEVELS)]
        return [(f"%RETRY%{self.group}", 0), (f"%DLQ%{self.group}", 0), (self.topic, 0), (self.topic, 1), *scheduled]

    async def ask(self, command: Command) -> Command:
        address = self.client._session.routes.known_master("broker-a")
        assert address is not None
        return await self.client._session.call(address, command, timeout=TIMEOUT)

    async def note(self, case: str, command: Command) -> Command:
        """Sends a request, and notes its answer and the messages that it stored."""
        before = await self.ends()
        answer = await self.ask(command)
        after = await self.ends()
        stored = [
            (self.bare(topic), queue_id, [message async for message in self.messages(topic, queue_id, end, after[key])])
            for key, end in before.items()
            for topic, queue_id in (key,)
            if after[key] > end
        ]
        self.rows[case] = answer.code, self.bare(MASKED.sub("*", answer.remark or "")), stored
        return answer

    async def ends(self) -> dict[tuple[str, int], int]:
        """Returns the ends of the queues, when all is readable that was stored before."""
        await self._dispatched()
        offsets = {}
        for topic, queue_id in self.queues:
            answer = await self.ask(GetMaxOffset(topic, queue_id).to_command())
            offsets[topic, queue_id] = 0 if answer.code else OffsetFound.from_command(answer).offset
        return offsets

    async def _dispatched(self) -> None:
        """Stores a message, and returns when it is readable: a broker makes queue entries in the order of its log."""
        marks = f"{self.topic}-marks"
        stored = MessageStored.from_command(await self.ask(send(marks).to_command()))
        with trio.fail_after(TIMEOUT):
            while True:
                answer = await self.ask(GetMaxOffset(marks, 0).to_command())
                if not answer.code and OffsetFound.from_command(answer).offset > stored.queue_offset:
                    return

    async def messages(self, topic: str, queue_id: int, start: int, end: int) -> AsyncIterator[object]:
        request = PullMessage("readers", topic, queue_id, start, end - start, 4, subscription="*")
        answer = await self.ask(request.to_command())
        if answer.code:
            yield answer.code, 0, 0, 0, {}  # a topic that is not readable
            return
        for record in iterate_records(PullAnswer.from_command(answer).records, check_crc=True):
            properties = {
                name: self.bare(MASKED.sub("*", text)) for name, text in decode_properties(record.properties).items()
            }
            yield record.body, record.reconsume_times, record.sys_flag, record.flag, properties

    async def config(self, topic: str) -> object:
        answer = await self.ask(GetTopicConfig(topic).to_command())
        if answer.code:
            return answer.code
        config = TopicConfigFound.from_command(answer).config
        return config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag

    def bare(self, text: str) -> str:
        return text.replace(self.topic, "TOPIC").replace(self.group, "GROUP")


def send(topic: str, **fields: Any) -> SendMessage:
    usual = SendMessage(
        producer_group="strangers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp_ms=BORN_MS,
        flag=7,
        properties="TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02",
        body=b"body",
    )
    return replace(usual, **fields)


async def send_backs(outcomes: Outcomes) -> dict[str, Any]:
    """Returns the outcome of each case of 36: where a message went, with what, and what was refused."""
    ask, note, group = outcomes.ask, outcomes.note, outcomes.group
    stored = MessageStored.from_command(await note("a message", send(outcomes.topic).to_command()))
    back = ConsumerSendMsgBack(decode_offset_msg_id(stored.msg_ids).offset, group, AN_HOUR, "origin", outcomes.topic)

    async def case(name: str, **fields: Any) -> None:
        await note(name, replace(back, **fields).to_command())

    await case("no such offset", offset=1 << 40)
    await case("behind a record's start", offset=back.offset + 1)
    await case("negative", offset=-1)
    outcomes.rows["its retry topic"] = await outcomes.config(f"%RETRY%{group}")
    await case("an hour")
    await case("dead at once", delay_level=-1)
    outcomes.rows["its dead letters"] = await outcomes.config(f"%DLQ%{group}")
    await case("a level too high", delay_level=99)
    await case("tries are over", max_reconsume_times=0)
    await case("one try more", max_reconsume_times=1)
    await case("a unit", unit_mode=True)
    await case("another topic's name", origin_topic="nonsense")
    for name, settings in (("no retries", {"retryMaxTimes": 0}), ("no retry queues", {"retryQueueNums": 0})):
        members = {**GROUP, "groupName": group, "retryQueueNums": 1, "retryMaxTimes": 16, **settings}
        assert (await ask(Command(UPDATE_GROUP, body=dumps(members)))).code == 0
        await case(name)
        await case(f"{name}, and a number of tries", max_reconsume_times=3)
    members = {**GROUP, "groupName": group, "retryQueueNums": 1, "retryMaxTimes": 16}
    assert (await ask(Command(UPDATE_GROUP, body=dumps(members)))).code == 0
    for name, topic in (("retry topic", f"%RETRY%{group}"), ("dead letters", f"%DLQ%{group}")):
        for perm in (4, 2):
            update = UpdateTopic(topic, 1, 1, perm)
            assert (await ask(update.to_command())).code == 0
            await case(f"{name}, permission {perm}")
            await case(f"{name}, permission {perm}, dead at once", delay_level=-1)
        assert (await ask(replace(update, perm=6).to_command())).code == 0
    await case("the broker's level", delay_level=0)
    return outcomes.rows


async def batches(outcomes: Outcomes) -> dict[str, Any]:
    """Returns the outcome of each case of a batch for one queue."""
    first, second = (encode_batch_body([(0, text, b"TAGS\x01a\x02")]) for text in (b"one", b"two"))
    sound = send(outcomes.topic, batch=True, body=first + second, properties="")
    cases: dict[str, dict[str, Any]] = {
        "two messages": {},
        "one message": {"body": first},
        "properties of the header": {"properties": "TAGS\x01b\x02KEYS\x01k\x02"},
        "a unique key": {"properties": "UNIQ_KEY\x01U1,U2\x02"},
        "any queue": {"queue_id": -1, "topic": f"{outcomes.topic}-one"},
        "no such queue": {"queue_id": 99},
        "a negative queue": {"queue_id": -7, "topic": f"{outcomes.topic}-one"},
        "cut short": {"body": (first + second)[:-3]},
        "nonsense": {"body": b"\xff" * 40},
        "delayed": {"properties": "DELAY\x0117\x02"},
        "in a transaction": {"sys_flag": 4},
        "half": {"properties": "TRAN_MSG\x01true\x02"},
        "a retry topic": {"topic": f"%RETRY%{outcomes.group}"},
        "a topic of the system": {"topic": "SCHEDULE_TOPIC_XXXX"},
        "a large body": {"body": encode_batch_body([(0, b"x" * 5_000_000, b"")])},
        "retried": {"reconsume_times": 3},
    }
    for name, fields in cases.items():
        await outcomes.note(name, replace(sound, **fields).to_command())
    await outcomes.note("as one of code 10", send_of_code_10(replace(sound, batch=True)))
    return outcomes.rows


async def batch_send_backs(outcomes: Outcomes) -> dict[str, Any]:
    """Returns the outcome of each case of 36 for a batch that is one record, and of sends that look like one."""
    note, group = outcomes.note, outcomes.group
    two = encode_batch_body((0, text, b"TAGS\x01a\x02") for text in (b"one", b"two"))
    batch = send(outcomes.topic, batch=True, body=two, properties="UNIQ_KEY\x01U\x02")
    stored = MessageStored.from_command(await note("a batch", batch.to_command()))
    back = ConsumerSendMsgBack(decode_offset_msg_id(stored.msg_ids).offset, group, AN_HOUR, "origin", outcomes.topic)
    await note("an hour", back.to_command())
    await note("dead at once", replace(back, delay_level=-1).to_command())
    await note("tries are over", replace(back, max_reconsume_times=0).to_command())
    outcomes.rows["its dead letters"] = await outcomes.config(f"%DLQ%{group}")
    record = send(outcomes.topic, body=two, sys_flag=0xC0)
    retry = replace(record, topic=f"%RETRY%{group}", reconsume_times=1)
    usual = record.properties or ""
    cases = {
        "a retry": retry,
        "a dead retry": replace(retry, reconsume_times=17),
        "a retry with a number": replace(retry, sys_flag=0, properties="INNER_NUM\x012\x02"),
        "a level": replace(record, properties=f"{usual}DELAY\x0117\x02"),
        "a time": replace(record, properties=f"{usual}TIMER_DELAY_SEC\x01100\x02"),
        "half": replace(record, sys_flag=0xC4, properties=f"{usual}TRAN_MSG\x01true\x02"),
        "a plain topic": replace(record, topic=f"{outcomes.topic}-plain"),
    }
    for name, message in cases.items():
        await note(name, message.to_command())
    return outcomes.rows
