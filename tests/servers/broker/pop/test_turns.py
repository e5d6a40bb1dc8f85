"""Acknowledgements are answered before the pops in front of them, and requests that waited are checked again."""

from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import pytest
import trio

from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.network.connection.peer import PeerConnection
from pyrmq_core.network.turns import AT_ONCE
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.group_admin import UpdateGroupForbidden
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage
from pyrmq_core.protocol.requests.pop.pop_message import POLLING_TIMEOUT, PopMessage
from pyrmq_core.protocol.requests.pop.settle import AckMessage, BatchAckMessage, ChangeInvisibleTime, ack_entries
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.pop.waits import MANY_QUEUES
from pyrmq_core.servers.broker.processors.handlers import Answer
from pyrmq_core.servers.broker.processors.pops.pop_message import TOO_LATE_MS, PopRequests
from pyrmq_core.servers.broker.processors.pops.settle import SettleRequests
from pyrmq_core.servers.broker.processors.table import families_of
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from tests.servers.broker.pop.popping import BROKER, pop, pop_message
from tests.servers.broker.serving import Served, serving, until

POPS, SETTLED = 120, 12


async def settling(served: Served) -> list[Command]:
    """Returns the requests that settle popped messages: acknowledgements, also in batches, and extensions."""
    for _ in range(SETTLED):
        await served.send("T")
    receipts, requests = [each.receipt for each in await pop(served)], list[Command]()
    for first, second, third in zip(receipts[::3], receipts[1::3], receipts[2::3], strict=True):
        requests += [
            AckMessage("G", "T", first.queue_id, first.encode(), first.queue_offset).to_command(),
            BatchAckMessage(BROKER, ack_entries("T", "G", [second])).to_command(),
            ChangeInvisibleTime("G", "T", third.queue_id, third.encode(), third.queue_offset, 60_000).to_command(),
        ]
    return requests


def put(served: Served, messages: int) -> None:
    host = served.running.broker.identity.store_host
    for _ in range(messages):
        served.running.broker.store.put(Append("T", 0, [piece(0, b"x", b"")], 0, host, host), clock.now_ms())


class Drained:
    """A connection whose answers are all written."""

    async def wait_answer_turn(self) -> None: ...


@pytest.mark.parametrize("is_woken", [False, True])
async def test_what_settles_messages_does_not_wait_for_the_pops_before_it(tmp_path: Path, is_woken: bool) -> None:
    async with serving(tmp_path) as served:
        settles, broker, order = await settling(served), served.running.broker, list[str]()
        families = [each for each in families_of(broker) if isinstance(each, PopRequests | SettleRequests)]
        handlers = {code: handler for family in families for code, handler in family.handlers().items()}
        peer = Peer(cast("PeerConnection", Drained()), "127.0.0.1:1", "127.0.0.1:2")

        async def note(name: str, answer: Answer) -> None:
            command = answer if isinstance(answer, Command) else await cast("Awaitable[Command]", answer)
            assert command.code == ResponseCode.SUCCESS
            order.append(name)

        def ask(requests: list[Command], name: str) -> None:
            for request in requests:
                answer = handlers[request.code](request, peer)
                nursery.start_soon(note, name, answer)

        # So long that no pop is refused for having waited too long for its turn, however slow the machine is.
        pops = [pop_message(messages=1, poll_time_ms=600_000).to_command()] * POPS
        async with trio.open_nursery() as nursery:
            if is_woken:
                ask(pops, "pop")
                await until(lambda: broker.deliveries.reviver.waits.held.count == POPS)
                put(served, POPS)
            else:
                put(served, POPS)
                ask(pops, "pop")
            ask(settles, "settled")
        last = len(order) - order[::-1].index("settled")
        assert last < SETTLED + POPS / 2


@pytest.mark.parametrize(("change", "code"), [("topic", ResponseCode.TOPIC_NOT_EXIST), ("time", POLLING_TIMEOUT)])
async def test_a_pop_is_checked_when_its_turn_comes(
    change: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        await served.send("T")
        (pops,) = (each for each in families_of(served.running.broker) if isinstance(each, PopRequests))
        peer = Peer(cast("PeerConnection", Drained()), "127.0.0.1:1", "127.0.0.1:2")
        turns = pops.reviver.waits.turns
        assert all(turns.take_nowait() for _ in range(AT_ONCE))
        waiting = pops.pop(pop_message().to_command(), peer)
        if change == "topic":
            pops.topics.remove("T", clock.now_ms())
        else:
            late = clock.now_ms() + TOO_LATE_MS + 1
            monkeypatch.setattr(clock, "now_ms", lambda: late)
        answer = await cast("Awaitable[Command]", waiting)
        assert answer.code == code


@pytest.mark.parametrize(
    "request_of_many", [pop_message(), AwaitMessage("G", "T", -1, 0, 0)], ids=["pop", "notification"]
)
async def test_requests_for_many_queues_have_a_pass_of_the_event_loop_each(
    tmp_path: Path, request_of_many: PopMessage | AwaitMessage
) -> None:
    async with serving(tmp_path) as served:
        tables, passes, seen = served.running.broker.tables, 0, list[int]()
        tables.topics.put(TopicConfig("T", MANY_QUEUES + 1, MANY_QUEUES + 1, 6), 0)
        handlers = {
            code: handler for each in families_of(served.running.broker) for code, handler in each.handlers().items()
        }
        peer, request = (
            Peer(cast("PeerConnection", Drained()), "127.0.0.1:1", "127.0.0.1:2"),
            request_of_many.to_command(),
        )

        async def ask() -> None:
            answer = handlers[request.code](request, peer)
            if not isinstance(answer, Command):
                await cast("Awaitable[Command]", answer)
            seen.append(passes)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
            while len(seen) < 8:
                await trio.lowlevel.checkpoint()
                passes += 1
        # Two of them count the same passes if this task runs last in one pass and first in the next.
        assert max(Counter(seen).values()) <= 2


HELD = {
    "pull": PullMessage("G", "T", 0, 1, 32, int(PullSysFlag.SUSPEND), suspend_timeout_ms=600_000).to_command(),
    "pop": pop_message(poll_time_ms=600_000).to_command(),
    "notification": AwaitMessage("G", "T", -1, 600_000, 0).to_command(),
}


@pytest.mark.parametrize("change", ["group", "forbidden", "permission", "deletion"])
@pytest.mark.parametrize("what", HELD)
async def test_a_request_that_was_held_is_checked_again(tmp_path: Path, what: str, change: str) -> None:
    member = HeartBeat("c", (), (ConsumerData("G", subscriptions=(SubscriptionData("T"),)),))
    async with serving(tmp_path) as served:
        await served.send("T")
        assert len(await pop(served)) == 1
        assert (await served.ask(member.to_command())).code == ResponseCode.SUCCESS
        tables, held, answers = served.running.broker.tables, served.running.broker.clients.held, list[Command]()

        async def ask() -> None:
            answers.append(await served.ask(HELD[what]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await until(lambda: held.count == 1)
            match change:
                case "group":
                    tables.groups.put({"groupName": "G", "consumeEnable": False}, 0)
                case "forbidden":
                    await served.ask(UpdateGroupForbidden("G", "T", False).to_command())
                case "permission":
                    tables.topics.put(TopicConfig("T", 4, 4, Permission.WRITE), 0)
                case _:
                    await served.ask(DeleteTopic("T").to_command())
            if change == "deletion":
                held.wake_all()
            else:
                put(served, 1)
        is_deleted = change == "deletion"
        assert answers[0].code == (ResponseCode.TOPIC_NOT_EXIST if is_deleted else ResponseCode.NO_PERMISSION)
        assert tables.offsets.committed("G", "T", 0) == (None if is_deleted else 1)
        assert tables.offsets.pulled("G", "T", 0) in ((None,) if is_deleted else (None, 1))
