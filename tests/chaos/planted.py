"""Faults that a run can plant into its processes, to show that the checker finds them.

Each puts back, at run time, what the code did before a mend: it replaces the mended names, and fails where one of them
is gone. A patch of the text would have to be written anew whenever a line beside the mend changes.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from pyrmq_core import LitePullConsumer
from pyrmq_core.client.consumer import pull_consumer
from pyrmq_core.client.consumer.consume import send_back
from pyrmq_core.client.consumer.consume.concurrently import ConcurrentService
from pyrmq_core.client.consumer.consume.handler_calls import CallRun, HandlerCalls
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.pull.range_reader import RangeReader
from pyrmq_core.client.producer.bulk.accumulator import Accumulator
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.routing import publish_info
from pyrmq_core.committed.ranges import CommittedRange
from pyrmq_core.errors import StoreError
from pyrmq_core.model import LocalTransactionState, MessageExt, MessageQueue
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.servers.access.guard import Guard
from pyrmq_core.servers.broker.ha.ha_client import HaClient
from pyrmq_core.servers.broker.ha.replicas import Replicas
from pyrmq_core.servers.broker.processors import consumer_send_back
from pyrmq_core.servers.broker.processors.pulls.pull_message import PullRequests
from pyrmq_core.servers.broker.schedule import delay_levels
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.store import queue_table
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from tests.chaos.plan import TOPICS
from tests.chaos.traffic import Checks
from tests.support.our_cluster import OurServer

VARIABLE: Final = "PYRMQ_CHAOS_PLANT"
# More than a batch of a member's handler: such a queue goes to the end of the line of those with waiting messages.
MANY_MESSAGES: Final = 8
# By then a slave has the topics.
SPOILED_WRITE: Final = 30
DELIVERED_TWICE: Final = 5
CALLED_TWICE: Final = 50
STORED_TWICE: Final = 50
POLLED_SHORT: Final = 20
QUEUES_AT_FIRST: Final = 4
SENDS: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def plant_by_environment() -> None:
    """Plants the faults that the environment names, if any, into this process."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        PLANTS[name]()


@contextmanager
def planted(plant: Callable[[], None]) -> Iterator[None]:
    """Plants a fault for the block."""
    first = len(_REPLACED)
    try:
        plant()
        yield
    finally:
        for owner, name, value in reversed(_REPLACED[first:]):
            setattr(owner, name, value)
        del _REPLACED[first:]


_REPLACED: Final[list[tuple[Any, str, object]]] = []


def replace(owner: Any, name: str, make: Callable[[Any], object]) -> None:
    """Replaces a name of a class or module by what `make` returns for its value.

    Raises `AttributeError` if the name is gone, `TypeError` if the function of a plant takes other arguments: a broker
    would end at its first call, and hide the fault that was to show.
    """
    value = getattr(owner, name)
    planted = make(value)
    if inspect.isfunction(value):
        assert callable(planted)
        for call in _calls_of(inspect.signature(value)):
            inspect.signature(planted).bind(*call.args, **call.kwargs)
    _REPLACED.append((owner, name, value))
    setattr(owner, name, planted)


def _calls_of(signature: inspect.Signature) -> Iterator[inspect.BoundArguments]:
    """Yields a call with every parameter, and one without those that have a default."""
    every = list(signature.parameters.values())
    for parameters in (every, [each for each in every if each.default is each.empty]):
        by_name = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
        yield signature.bind(*(None for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD), **by_name)


def pass_over_dropped_queues(real: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `ConcurrentService._next_queue` as it was: it never lets go of a dropped queue that has messages."""

    def next_queue(service: ConcurrentService) -> Any:
        while (assigned := real(service)) is not None and assigned.process_queue.is_dropped:
            pass
        return assigned

    return next_queue


def _spin() -> None:
    """Has a dropped queue take the messages of its last answer, and its service never let go of it.

    The answer comes just as the queue is dropped: that is rare, and is brought about once in each member.
    """
    are_dropped: list[ProcessQueue] = []

    def put(real: Callable[..., None]) -> Callable[..., None]:
        def planted(queue: ProcessQueue, messages: Sequence[MessageExt], position: int) -> None:
            if len(messages) >= MANY_MESSAGES and not are_dropped:
                are_dropped.append(queue)
            real(queue, messages, position)
            queue.is_dropped = queue.is_dropped or queue in are_dropped

        return planted

    replace(ProcessQueue, "put", put)
    replace(ConcurrentService, "_next_queue", pass_over_dropped_queues)


def _whole_batches() -> None:
    """Has the broker store a whole batch record at one offset when one message of it is given back."""
    for module in (send_back, consumer_send_back, delay_levels, queue_table):
        replace(module, "BATCH_RECORD", lambda _: 0)


def _swallowed_resets() -> None:
    """Has a member that reads ahead pass over the answer that resets its group, which the broker gives once."""

    def moved(real: Callable[..., Any]) -> Callable[..., Any]:
        def planted(pulls: PullRequests, header: Any, *others: Any) -> Any:
            answer = real(pulls, header, *others)
            if answer is not None:
                pulls.offsets.end_reset(header.consumer_group, header.topic, header.queue_id)
            return answer

        return planted

    replace(RangeReader, "_is_moved", lambda _: lambda *_: False)
    replace(PullRequests, "_moved", moved)


def _second_copies() -> None:
    """Has a try wait for a share of the time only; the next sends the message to another broker."""

    def try_seconds(real: Callable[..., float]) -> Callable[..., float]:
        return lambda sender, state, seconds: real(sender, state, seconds / max(1, state.tries_left))

    replace(Sender, "_try_seconds", try_seconds)


def _spoiled_copies() -> None:
    """Has a slave store one bit of its master's log wrong."""

    def store_bodies(real: Callable[..., None]) -> Callable[..., None]:
        received = count(1)

        def planted(client: HaClient, end: int, bodies: list[memoryview]) -> None:
            if bodies and next(received) == SPOILED_WRITE:
                last = bytes(bodies[-1])
                bodies[-1] = memoryview(last[:-1] + bytes([last[-1] ^ 1]))
            real(client, end, bodies)

        return planted

    replace(HaClient, "_store_bodies", store_bodies)


def _lost_members() -> None:
    """Has an automatic batch send its last message twice, and its first one never."""

    def send(real: Callable[..., None]) -> Callable[..., None]:
        def planted(accumulator: Accumulator, batch: Any) -> None:
            batch.members[0] = batch.members[-1]
            real(accumulator, batch)

        return planted

    replace(Accumulator, "_send", send)


def _committed_rollbacks() -> None:
    """Has the answer to a check commit every transaction."""

    def check(real: Callable[..., Any]) -> Callable[..., Any]:
        async def planted(checks: Checks, message: MessageExt) -> LocalTransactionState:
            await real(checks, message)
            return LocalTransactionState.COMMIT_MESSAGE

        return planted

    replace(Checks, "check_local_transaction", check)


def _early_deliveries() -> None:
    """Has the broker deliver the messages of a delay level at once."""

    def place(real: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
        def planted(*arguments: Any) -> tuple[int, int]:
            return real(*arguments)[0], 0

        return planted

    replace(DelayLevels, "place", place)


def _second_deliveries() -> None:
    """Has the broker deliver some messages of a delay level twice."""

    def deliver(real: Callable[..., bool]) -> Callable[..., bool]:
        def planted(levels: DelayLevels, raw: bytes | None, level: int, offset: int, *, is_due: bool) -> bool:
            if not offset % DELIVERED_TWICE:
                real(levels, raw, level, offset, is_due=is_due)
            return real(levels, raw, level, offset, is_due=is_due)

        return planted

    replace(DelayLevels, "_deliver", deliver)


def _second_calls() -> None:
    """Has a member call its handler twice for some messages."""

    def make_calls(real: Callable[..., Any]) -> Callable[..., Any]:
        calls_made = count(1)

        async def planted(calls: HandlerCalls, run: CallRun) -> None:
            await real(calls, run)
            if not next(calls_made) % CALLED_TWICE:
                await real(calls, CallRun(run.batches[:1]))

        return planted

    replace(HandlerCalls, "make_calls", make_calls)


def _unflushed_answers() -> None:
    """Has the broker never flush its log, which it takes for flushed."""
    replace(CommitLog, "unsynced", lambda real: lambda log: (real(log)[0], []))


def _unwritten_answers() -> None:
    """Has the broker answer as if a message were stored that its full disk refused."""

    def put(real: Callable[..., AppendResult]) -> Callable[..., AppendResult]:
        def planted(store: MessageStore, append: Append, now_ms: int) -> AppendResult:
            try:
                return real(store, append, now_ms)
            except StoreError:
                return AppendResult([store.end] * len(append.pieces), 0, store.end)

        return planted

    replace(MessageStore, "put", put)


def _moved_readers() -> None:
    """Has a broker answer a pull that a topic's permission forbids as if its offset were wrong: to go to the end."""

    def refuse(real: Callable[..., Command | None]) -> Callable[..., Command | None]:
        def planted(pulls: PullRequests, header: Any, *others: Any) -> Command | None:
            refused = real(pulls, header, *others)
            if refused is None or refused.code != ResponseCode.NO_PERMISSION:
                return refused
            start, end = pulls.store.reader.bounds((header.topic, header.queue_id))
            moved = PullAnswer(
                code=ResponseCode.PULL_OFFSET_MOVED, next_begin_offset=end, min_offset=start, max_offset=end
            )
            return moved.to_command()

        return planted

    replace(PullRequests, "_refuse", refuse)


def _unread_queues() -> None:
    """Has a client read the queues alone that the topics have at first."""

    def read_queues(real: Callable[..., tuple[MessageQueue, ...]]) -> Callable[..., tuple[MessageQueue, ...]]:
        return lambda *arguments: tuple(queue for queue in real(*arguments) if queue.queue_id < QUEUES_AT_FIRST)

    replace(publish_info, "_read_queues", read_queues)


def _lonely_answers() -> None:
    """Has a synchronous master answer before its slave has the message."""
    replace(Replicas, "can_copy", lambda _: lambda *_: True)
    replace(Replicas, "wait", lambda _: _true)


async def _true(*_: object) -> bool:
    return True


def _kept_queues() -> None:
    """Has a broker keep the messages of a topic that is deleted."""
    replace(MessageStore, "delete_topic", lambda _: lambda *_: [])


def _passed_topics() -> None:
    """Has a broker let members go on behind the first messages of a topic that is deleted and made again."""
    real = GroupOffsets.forget_topic
    replace(GroupOffsets, "forget_topic", lambda _: lambda offsets, topic, going_on=(): real(offsets, topic))


def _short_polls() -> None:
    """Has some polls leave out a message."""

    def poll(real: Callable[..., Any]) -> Callable[..., Any]:
        polls = count(1)

        async def planted(consumer: LitePullConsumer, *timeout: float) -> Any:
            messages = await real(consumer, *timeout)
            return messages if next(polls) % POLLED_SHORT else messages[1:]

        return planted

    replace(LitePullConsumer, "poll", poll)


def _emptied_stores() -> None:
    """Has an upgrade of a broker of ours begin with an empty store."""

    def run_code_of(real: Callable[[OurServer, Path], None]) -> Callable[[OurServer, Path], None]:
        def planted(broker: OurServer, root: Path) -> None:
            shutil.rmtree(broker.store, ignore_errors=True)
            real(broker, root)

        return planted

    replace(OurServer, "run_code_of", run_code_of)


def _second_records() -> None:
    """Has the broker store some messages twice, though they were sent once."""

    def put(real: Callable[..., AppendResult]) -> Callable[..., AppendResult]:
        appends = count(1)

        def planted(store: MessageStore, append: Append, now_ms: int) -> AppendResult:
            if append.topic in TOPICS and not next(appends) % STORED_TWICE:
                real(store, append, now_ms)
            return real(store, append, now_ms)

        return planted

    replace(MessageStore, "put", put)


def _ended_storing() -> None:
    """Has a broker store nothing more once its timers flush on a full disk, as they do when its clock is set back."""

    def flush(real: Callable[..., None]) -> Callable[..., None]:
        def planted(store: MessageStore, *arguments: Any, **others: Any) -> None:
            try:
                real(store, *arguments, **others)
            except StoreError as error:
                store.fail(str(error))
                raise

        return planted

    replace(MessageStore, "flush", flush)


def _whole_queues() -> None:
    """Has a committed read give all that a queue holds between its first committed row and its last."""

    def ranges(real: Callable[..., list[CommittedRange]]) -> Callable[..., list[CommittedRange]]:
        def planted(commits: Any, topic: str) -> list[CommittedRange]:
            parts = real(commits, topic)
            return [
                CommittedRange(queue, own[0].start, own[-1].end, sum([part.ids for part in own], ()))
                for queue in dict.fromkeys(part.queue for part in parts)
                if (own := [part for part in parts if part.queue == queue])
            ]

        return planted

    replace(pull_consumer, "ranges_to_read", ranges)


def _answered_refusals() -> None:
    """Has a broker answer a send that it refuses as if it were stored."""

    def denied(real: Callable[..., Command | None]) -> Callable[..., Command | None]:
        def planted(guard: Guard, request: Command, peer: Peer) -> Command | None:
            refused = real(guard, request, peer)
            if refused is None or request.code not in SENDS:
                return refused
            stored = MessageStored(msg_ids=offset_msg_id(bytes(4), 1, 0), queue_id=0, queue_offset=0)
            return stored.to_command()

        return planted

    replace(Guard, "denied", denied)


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "spin": _spin,
    "whole batches": _whole_batches,
    "swallowed resets": _swallowed_resets,
    "second copies": _second_copies,
    "spoiled copies": _spoiled_copies,
    "lost members": _lost_members,
    "committed rollbacks": _committed_rollbacks,
    "early deliveries": _early_deliveries,
    "second deliveries": _second_deliveries,
    "second calls": _second_calls,
    "unflushed answers": _unflushed_answers,
    "unwritten answers": _unwritten_answers,
    "moved readers": _moved_readers,
    "unread queues": _unread_queues,
    "lonely answers": _lonely_answers,
    "short polls": _short_polls,
    "emptied stores": _emptied_stores,
    "kept queues": _kept_queues,
    "passed topics": _passed_topics,
    "answered refusals": _answered_refusals,
    "second records": _second_records,
    "ended storing": _ended_storing,
    "whole queues": _whole_queues,
}
