"""Sends in the background: abandoned with their caller, started from a thread only if no other is under way."""

import trio

from pyrmq_core import AnyQueue, RocketMQError, SendFailed
from pyrmq_core.client.producer.send.background_sends import BackgroundSends
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_options import CommunicationMode
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.network import LoopAccess
from tests.client.sends import payload
from tests.support.scripted import SEND, after
from tests.support.stage import Stage, settled

End = Receipt | RocketMQError


def access_here() -> LoopAccess:
    """Returns the access of a thread that holds the loop."""
    return LoopAccess(trio.current_time, trio.lowlevel.current_trio_token().run_sync_soon, writes_here=True)


async def test_what_starts_after_the_end_is_given_up_at_once(stage: Stage, sender: Sender) -> None:
    ends: list[End] = []
    async with trio.open_nursery() as nursery:
        under_way = BackgroundSends(nursery, sender)
        under_way.abandon()
        under_way.start(payload(), AnyQueue(), 3, CommunicationMode.SYNC, ends.append)
        (end,) = ends
        assert isinstance(end, SendFailed)
        from_thread = under_way.start(payload(), AnyQueue(), 3, CommunicationMode.SYNC, ends.append, access_here())
        assert from_thread is None
    assert stage.sends() == []


async def test_only_a_send_that_is_alone_is_started_from_a_thread(stage: Stage, sender: Sender) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    ends: list[End] = []
    async with trio.open_nursery() as nursery:
        under_way = BackgroundSends(nursery, sender)
        under_way.start(payload(), AnyQueue(), 3, CommunicationMode.SYNC, ends.append)

        def start_from_thread() -> object:
            return under_way.start(payload(), AnyQueue(), 3, CommunicationMode.SYNC, ends.append, access_here())

        assert start_from_thread() is None
        release.set()
        await settled()
        assert len(ends) == 1
        assert len(under_way) == 0
        assert start_from_thread() is not None
        await settled()
    assert [isinstance(end, Receipt) for end in ends] == [True, True]


async def test_what_is_given_up_before_its_task_has_run_is_not_sent(stage: Stage, sender: Sender) -> None:
    ends: list[End] = []
    async with trio.open_nursery() as nursery:
        under_way = BackgroundSends(nursery, sender)
        state = under_way.start(payload(), AnyQueue(), 3, CommunicationMode.SYNC, ends.append)  # no route is known yet
        assert ends == []
        assert state is not None
        under_way.give_up(state)
        await settled()
    assert [type(end) for end in ends] == [SendFailed]
    assert stage.sends() == []
