"""Ordered pops: a queue whose messages are out is locked until they are acknowledged or visible again."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, MessageAwaited
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer, read_order_counts
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.pop.ordered import FILE_NAME, OrderedPop, OrderedQueues
from pyrmq_core.servers.broker.pop.waits import PopWaits
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from tests.servers.broker.pop.popping import Delivery, ack, ack_all, change, pop, pop_message
from tests.servers.broker.serving import Served, serving, until

QUEUE = ("G", "T", 0)
MINUTE_MS = 60_000


async def take(served: Served, **how: Any) -> list[Delivery]:
    return await pop(served, order=True, **how)


async def send(served: Served, bodies: str) -> None:
    for body in bodies:
        await served.send("T", body.encode())


def text(popped: list[Delivery]) -> str:
    return "".join(each.body.decode() for each in popped)


def committed(served: Served) -> int | None:
    return served.running.broker.tables.offsets.committed(*QUEUE)


async def test_a_queue_is_locked_until_its_messages_are_acknowledged(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "abcdef")
        assert text(await take(served, messages=3, attempt_id="one")) == "abc"
        assert await take(served, attempt_id="two") == await take(served) == []
        popped = await take(served, messages=2, attempt_id="one")
        assert (text(popped), committed(served)) == ("ab", 0)
        await ack(served, popped[1].receipt)
        assert (await take(served), committed(served)) == ([], 0)
        await ack(served, popped[0].receipt)
        assert committed(served) == 2
        assert text(await take(served)) == "cdef"
        assert text(await take(served, consumer_group="H", messages=1)) == "a"


async def test_the_answer_counts_the_earlier_pops_of_each_message(tmp_path: Path) -> None:
    async def counts(**how: Any) -> dict[tuple[str, int, int | None], int]:
        answer = PopAnswer.from_command(await served.ask(pop_message(order=True, **how).to_command()))
        assert answer.revive_queue_id == 999
        return read_order_counts(answer.order_count_info or "")

    async with serving(tmp_path) as served:
        await send(served, "abc")
        assert await counts(messages=2, invisible_ms=0, attempt_id="one") == {("0", 0, None): 0}
        assert await counts(messages=2, invisible_ms=0, attempt_id="one") == {("0", 0, None): 0}
        assert await counts(messages=1, invisible_ms=0) == {("0", 0, 0): 1, ("0", 0, None): 1}
        assert await counts(messages=2) == {("0", 0, 0): 2, ("0", 0, None): 0}


@pytest.mark.parametrize("waits", ["a pop", "a notification"])
@pytest.mark.parametrize("how", ["an acknowledgement", "a change", "the end of the invisible time"])
async def test_a_request_waits_for_the_lock(tmp_path: Path, waits: str, how: str) -> None:
    notice = AwaitMessage("G", "T", -1, MINUTE_MS, 0, order=True)
    waiting = notice if waits == "a notification" else pop_message(order=True, poll_time_ms=MINUTE_MS)
    is_short = how == "the end of the invisible time"
    async with serving(tmp_path) as served:
        await send(served, "ab")
        (first,) = await take(served, messages=1, invisible_ms=500 if is_short else MINUTE_MS)
        with trio.fail_after(30):  # half of the time of the poll
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served.ask, waiting.to_command())
                if not is_short:
                    held = served.running.broker.deliveries.reviver.waits.held
                    await until(lambda: held.count == 1)
                    if how == "a change":
                        await change(served, first.receipt, 1)
                    else:
                        await ack(served, first.receipt)


async def test_a_notification_says_nothing_of_a_locked_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "ab")
        await take(served, messages=1)
        for order in (True, False):
            answer = await served.ask(AwaitMessage("G", "T", -1, 0, 0, order=order).to_command())
            assert MessageAwaited.from_command(answer).has_message is not order


async def test_a_changed_time_keeps_the_lock_and_the_receipt(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "abc")
        popped = await take(served, messages=2, invisible_ms=1)
        receipt = await change(served, popped[0].receipt, MINUTE_MS)
        assert (receipt.pop_time_ms, receipt.is_ordered) == (popped[0].receipt.pop_time_ms, True)
        assert receipt.invisible_ms >= MINUTE_MS
        assert await take(served) == []
        await ack(served, receipt)
        again = await take(served)
        assert text(again) == "bc"
        assert (await change(served, receipt, 1)).pop_time_ms == 0  # it was acknowledged before
        assert await take(served) == []


async def test_an_acknowledgement_counts_for_its_own_pop_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "abc")
        old = await take(served, messages=2, invisible_ms=0)
        await until(lambda: clock.now_ms() > old[0].receipt.pop_time_ms)
        new = await take(served, messages=2)
        assert (await ack_all(served, [each.receipt for each in old])).code == ResponseCode.SUCCESS
        assert (committed(served), await take(served)) == (0, [])
        beyond = replace(new[0].receipt, queue_offset=2)
        foreign = [*(each.receipt for each in new), beyond]
        assert (await ack_all(served, foreign)).code == ResponseCode.MESSAGE_ILLEGAL
        assert committed(served) == 2  # the others count


async def test_locks_and_receipts_outlive_a_restart_and_a_kill_passes_nothing_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "abc")
        kept = await take(served, messages=2)
    async with serving(tmp_path, flushConsumerOffsetInterval="1000000") as served:
        assert await take(served) == []
        await ack(served, kept[0].receipt)
        await ack(served, kept[1].receipt)
        lost = await take(served)
        assert text(lost) == "c"
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path) as served:
        await ack(served, lost[0].receipt)
        assert committed(served) == 0
        await ack(served, kept[1].receipt)
        await ack(served, kept[0].receipt)
        assert text(await take(served)) == "c"


async def test_a_reset_and_a_deletion_end_the_lock(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "abc")
        popped = await take(served)
        offsets = served.running.broker.tables.offsets
        offsets.reset("G", "T", 0, 0)
        await ack(served, popped[0].receipt)
        assert committed(served) == 0
        assert text(await take(served)) == "abc"
        offsets.forget_topic("T")
        assert text(await take(served)) == "abc"


async def test_no_time_beyond_the_timers_locks_a_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, "a")
        (popped,) = await take(served)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "offset": "0", "invisibleTime": str(2**62)}
        answer = await served.ask(Command(200053, {**fields, "extraInfo": popped.receipt.encode()}))
        assert (answer.code, "too far ahead" in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)


class Waits:
    """Records the queues whose pops would be woken."""

    def __init__(self) -> None:
        self.woken: list[int] = []
        self.revive_arrived = trio.Event()

    def wake_queue(self, _group: str, _topic: str, queue_id: int) -> None:
        self.woken.append(queue_id)


def ordered(folder: Path) -> tuple[OrderedQueues, GroupOffsets]:
    files = DiskFiles(folder)
    offsets = GroupOffsets(files)
    return OrderedQueues(files, offsets, cast("PopWaits", Waits())), offsets


THEIRS = """{
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"T@G":{
			0:{
				"a":"one",
				"cm":2,
				"i":60000,
				"l":1795945764319,
				"o":[7,1,3],
				"oc":{
					7:2
				},
				"ot":{
					8:1795945764320
				},
				"popTime":1795945764319
			}
		}
	}
}"""


def test_the_file_of_a_real_broker_is_read_and_written_again(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / FILE_NAME
    pop_ms = clock.now_ms()  # rows of a day ago are dropped
    file.write_text(THEIRS.replace("1795945764319", f"{pop_ms}").replace("1795945764320", f"{pop_ms + 1}"))
    row = OrderedPop(pop_ms, 60_000, (7, 8, 10), "one", {7: 2}, {8: pop_ms + 1}, frozenset({8}))
    for _ in range(2):
        queues, offsets = ordered(tmp_path)
        queues.load()
        assert queues._rows == {QUEUE: row}
        offsets.commit(*QUEUE, 7)
        queues.is_changed = True
        make = queues.unsaved()
        assert make is not None
        file.write_bytes(make())


WRONG_ROWS = ["1", "{}", '{"o":[]}', '{"o":[0],"popTime":"x"}', f'{{"popTime":1,"o":{[0] * 33}}}']


@pytest.mark.parametrize("row", WRONG_ROWS)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, row: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / FILE_NAME).write_text(f'{{"table":{{"T@G":{{"0":{row}}}}}}}')
    with pytest.raises(StoreError, match=FILE_NAME):
        ordered(tmp_path)[0].load()


@pytest.mark.parametrize("seed", range(20))
def test_the_offset_passes_over_no_message_that_is_not_acknowledged(tmp_path: Path, seed: int) -> None:
    draw, (queues, offsets) = random.Random(seed), ordered(tmp_path)
    offsets.commit(*QUEUE, 0)
    now_ms, acked, receipts = clock.now_ms(), set[int](), list[tuple[int, int]]()
    for _ in range(300):
        now_ms += draw.randrange(1, 50)
        begin = offsets.committed(*QUEUE) or 0
        if draw.random() < 0.3 and not queues.is_locked(QUEUE, None, now_ms):
            numbers = tuple(range(begin, begin + draw.randrange(1, 6)))
            queues.take(QUEUE, OrderedPop(now_ms, draw.randrange(200), numbers))
            receipts += [(offset, now_ms) for offset in numbers]
        elif receipts:
            offset, pop_time_ms = draw.choice(receipts)
            if draw.random() < 0.2:
                queues.change(QUEUE, offset, pop_time_ms, now_ms + draw.randrange(200))
            else:
                queues.ack(QUEUE, offset, pop_time_ms)
                acked.add(offset)
        assert begin <= (offsets.committed(*QUEUE) or 0)
        assert set(range(offsets.committed(*QUEUE) or 0)) <= acked
    assert offsets.committed(*QUEUE)


def test_rows_and_times_are_dropped_in_the_end(tmp_path: Path) -> None:
    queues, offsets = ordered(tmp_path)
    now_ms = clock.now_ms()
    for number in range(1000):
        offsets.commit(*QUEUE, number)
        queues.take(QUEUE, OrderedPop(now_ms + number, MINUTE_MS, (number,)))
    assert len(queues._times) < 100
    offsets.commit("G", "T", 1, 0)
    queues.take(("G", "T", 1), OrderedPop(now_ms - 90_000_000, 1, (0,)))
    queues.take(("G", "T", 2), OrderedPop(now_ms, 1, (0,)))  # the topic was deleted
    queues.unsaved()
    assert list(queues._rows) == [QUEUE]


def test_queues_that_are_free_at_the_same_time_are_woken_one_by_one(tmp_path: Path) -> None:
    """Other tasks of the broker run between the steps, since each lite topic may be one of these queues."""
    queues, _ = ordered(tmp_path)
    woken, now_ms = cast("Waits", queues._waits).woken, clock.now_ms() + MINUTE_MS
    for number in range(3):
        queues.take(("G", "T", number), OrderedPop(now_ms, 0, (0,)))
    steps = queues.wake_freed(now_ms)
    for count in (1, 2, 3):
        next(steps)
        assert len(woken) == count
    assert list(steps) == []
