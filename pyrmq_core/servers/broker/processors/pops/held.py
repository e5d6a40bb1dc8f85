"""`HeldRequest`: the answer to a pop or a notification that waits for a message, at most for a given time."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import trio

from pyrmq_core.network import LateAnswer, Peer
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo
from pyrmq_core.protocol.requests.pop.pop_message import PopMessage
from pyrmq_core.servers.broker.clients.held_pulls import MILLISECONDS, HeldPull
from pyrmq_core.servers.broker.pop.waits import MANY_QUEUES, PopWaits, Waiter
from pyrmq_core.servers.broker.processors.handlers import Answer
from pyrmq_core.servers.broker.processors.put_message import RequestRefused


class HeldRequest(LateAnswer):
    """An answer that waits at most `left_ms` milliseconds for a message.

    `attempt` returns the answer. Called with False, it may return None, and the request keeps waiting. At the end of
    the time it is called with True, and must return an answer. `codes` are the hashes of tags that the request selects
    (None: any message). With `is_ready`, the first attempt is made at once, and otherwise when a message arrives. If
    the connection of a woken request closes before it takes a message, `pass_on` is called. By default it wakes another
    request with an equal `Waiter`.
    """

    __slots__ = (
        *("_attempt", "_codes", "_ends", "_held", "_is_ready", "_pass_on", "_peer", "_size_bytes", "_waiter", "_waits"),
    )

    def __init__(
        self,
        waits: PopWaits,
        waiter: Waiter,
        attempt: Callable[[bool], Awaitable[Command | None]],
        peer: Peer,
        size_bytes: int,
        left_ms: int,
        *,
        codes: Collection[int] | None = None,
        is_ready: bool = False,
        pass_on: Callable[[], object] | None = None,
    ) -> None:
        self._waits, self._waiter, self._attempt, self._peer = waits, waiter, attempt, peer
        self._size_bytes, self._codes, self._is_ready = size_bytes, codes, is_ready
        self._ends = trio.current_time() + left_ms / MILLISECONDS
        self._pass_on = pass_on or partial(waits.wake, waiter)
        self._held: HeldPull | None = None

    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        self._add(partial(ready, self))

    def _add(self, wake: Callable[[], None]) -> None:
        left_ms = 0 if self._is_ready else math.ceil((self._ends - trio.current_time()) * MILLISECONDS)
        self._held = self._waits.add(self._waiter, self._codes, left_ms, self._peer, self._size_bytes, wake)

    def drop(self) -> None:
        held = self._held
        if held is None:
            return
        if held.wake is None:  # the request was woken for a message that it does not take
            self._pass_on()
        self._waits.drop(self._waiter, held)

    async def make(self) -> Command | None:
        self._is_ready = False
        try:
            while True:
                await self._peer.connection.wait_answer_turn()
                answer = await self._attempt(self._ends <= trio.current_time())
                if answer is not None:
                    return answer
                woken = trio.Event()
                self._add(woken.set)
                await woken.wait()
        except RequestRefused as error:
            return refusal(error.code, str(error))
        except BaseException:
            self.drop()
            raise


def in_turn(waits: PopWaits, peer: Peer, take: Callable[[], Answer], queues: int = 1) -> Answer:
    """Returns the result of `take`, the work of a pop from `queues` queues.

    Calls it at once, or after the pops that wait already.
    """
    at_once = queues <= MANY_QUEUES and waits.turns.take_nowait()
    return take() if at_once else take_later(waits, peer, take, queues)


async def take_later(waits: PopWaits, peer: Peer, take: Callable[[], Answer], queues: int) -> Command | None:
    """Returns the result of `take`, once its turn has come."""
    await peer.connection.wait_answer_turn()
    await waits.take_turn(queues)
    answer = take()
    return answer if answer is None or isinstance(answer, Command) else await answer


def waiter_of(header: PopMessage | AwaitMessage | GetPollingInfo, *, takes: bool = True) -> Waiter:
    return Waiter(header.topic, header.consumer_group, max(header.queue_id, -1), takes)
