"""Notifications: the wait for a message to pop, apart from pops, and the number of pops that wait."""

from functools import partial
from pathlib import Path

import trio

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo, MessageAwaited, PollingInfo
from pyrmq_core.servers.broker import clock
from tests.servers.broker.pop.popping import pop
from tests.servers.broker.serving import Served, serving, until


async def notified(served: Served, *, poll_time_ms: int = 0, queue_id: int = -1) -> MessageAwaited:
    request = AwaitMessage("G", "T", queue_id, poll_time_ms, clock.now_ms())
    answer = await served.ask(request.to_command())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return MessageAwaited.from_command(answer)


async def polling(served: Served, queue_id: int = -1) -> int:
    answer = await served.ask(GetPollingInfo("G", "T", queue_id).to_command())
    return PollingInfo.from_command(answer).polling_num


async def test_a_notification_says_whether_there_is_something_to_pop(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"x", queue_id=2)
        assert (await notified(served)).has_message
        assert (await notified(served, queue_id=2)).has_message
        assert not (await notified(served, queue_id=1)).has_message
        await pop(served, invisible_ms=0)
        assert (await notified(served, poll_time_ms=10_000)).has_message  # the message that comes again
        await pop(served)
        assert not (await notified(served, poll_time_ms=100)).has_message


async def test_a_message_wakes_a_notification_and_a_pop(tmp_path: Path) -> None:
    async with serving(tmp_path, maxHeldPulls="2") as served:
        await served.send("T", b"x")
        await pop(served)
        answers: list[object] = []

        async def wait() -> None:
            answers.append((await notified(served, poll_time_ms=20_000)).has_message)

        async def take() -> None:
            answers.append([each.body for each in await pop(served, poll_time_ms=20_000)])

        waits = served.running.broker.deliveries.reviver.waits
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: waits.held.count == 1)
            assert await polling(served) == 0
            nursery.start_soon(take)
            await until(lambda: waits.held.count == 2)
            assert (await polling(served), await polling(served, 0)) == (1, 0)
            assert (await notified(served, poll_time_ms=20_000)).polling_full
            await served.send("T", b"y")
        assert sorted(map(str, answers)) in (["True", "[b'y']"], ["False", "[b'y']"])
        assert not waits._waiting


async def test_a_notification_that_came_last_is_woken_beside_the_first_pop(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"x")
        await pop(served)
        waits = served.running.broker.deliveries.reviver.waits
        async with trio.open_nursery() as nursery:
            for number in range(1, 3):
                nursery.start_soon(partial(pop, served, poll_time_ms=20_000))
                await until(lambda: waits.held.count == number)  # noqa: B023 - awaited in the loop
            nursery.start_soon(partial(notified, served, poll_time_ms=20_000))
            await until(lambda: waits.held.count == 3)
            await served.send("T", b"y")
            await until(lambda: waits.held.count == 1)
            assert await polling(served) == 1
            await served.send("T", b"z")


async def test_notifications_are_refused_as_pops_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"x")
        for request, code in (
            (AwaitMessage("G", "nope", -1, 0, 0), ResponseCode.TOPIC_NOT_EXIST),
            (AwaitMessage("G", "T", 9, 0, 0), ResponseCode.INVALID_PARAMETER),
            (GetPollingInfo("G", "nope", -1), ResponseCode.TOPIC_NOT_EXIST),
        ):
            assert (await served.ask(request.to_command())).code == code
