"""The log lines and problems of every background request of a client that a server refuses, or never answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    Client,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RequestTimeout,
)
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.requests.broker.consumer_list import ConsumerList
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues
from tests.support.closed_port import closed_port
from tests.support.jumping_clock import jumping_clock
from tests.support.scripted import Step, refuse, silence
from tests.support.stage import Stage, staged

__all__ = ["closed_port", "jumping_clock"]

Code = RequestCode
WORDS = "the words of the test"
REFUSED = refuse(ResponseCode.NO_PERMISSION, WORDS)
FAULTS = pytest.mark.parametrize(("fault", "words"), [(REFUSED, WORDS), (silence, "did not answer")])
FIRST = ConsumeFromWhere.FIRST_OFFSET
SECONDS = 1000.0  # of the clock that jumps


class Lines(logging.Handler):
    """The records of the client, with a wait for the next one: the clock jumps only while all tasks wait."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._thread = threading.get_ident()
        self._more = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return  # of a client of another test, whose thread must not set an event of this loop
        self.records.append(record)
        more, self._more = self._more, trio.Event()
        more.set()

    async def wait(self, level: int, *texts: str) -> str:
        """Returns the first line of the level that has the texts."""
        with trio.fail_after(SECONDS):
            while True:
                for record in self.records:
                    if record.levelno == level and all(text in record.getMessage() for text in texts):
                        return record.getMessage()
                await self._more.wait()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("pyrmq_core.client")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged("broker-a") as stage:
        stage.topic("orders", queues=1)
        stage.topic("%RETRY%billing", queues=1)
        stage.topic("traces", queues=1)
        stage.stores["broker-a"].put("orders", 0, b"one")
        yield stage


def behave(stage: Stage, client: Client) -> dict[int, Step]:
    """Has the broker list the client as the one member of each group, and grant it each lock; returns these steps."""
    steps: dict[int, Step] = {
        Code.GET_CONSUMER_LIST_BY_GROUP: lambda request, peer: ConsumerList((client.client_id,)).to_command(),
        Code.LOCK_BATCH_MQ: lambda request, peer: LockedQueues(LockQueues.from_command(request).queues).to_command(),
        Code.GET_CONSUMER_CONNECTION_LIST: refuse(ResponseCode.CONSUMER_NOT_ONLINE),
    }
    for code, step in steps.items():
        stage.brokers["broker-a"].always(code, step)
    return steps


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[Client]:
    async with Client(nameserver=stage.nameserver.address) as client:
        yield client


@asynccontextmanager
async def consuming(
    stage: Stage, faults: Mapping[int, Step], *, orderly: bool = False, fails: bool = False, trace: str | bool = False
) -> AsyncIterator[tuple[PushConsumer, Callable[[], None]]]:
    """Runs a consumer of "orders" beside a broker with these faults; yields it, and a function that mends them."""

    async def handle(messages: Sequence[MessageExt]) -> None:
        if fails:
            raise ValueError("not now")

    broker = stage.brokers["broker-a"]
    async with Client(nameserver=stage.nameserver.address) as client:
        usual = behave(stage, client)
        for code, step in faults.items():
            broker.always(code, step)

        def mend() -> None:
            for code in faults:
                broker.always(code, usual.get(code))

        async with (
            PushConsumer("billing", client=client, consume_from_where=FIRST, trace=trace) as consumer,
            trio.open_nursery() as nursery,
        ):
            await consumer.subscribe("orders")

            async def run() -> None:
                await consumer.run(handle, orderly=orderly)

            nursery.start_soon(run)
            yield consumer, mend
            with trio.CancelScope(shield=True):
                await consumer.stop(0)


WORKS = [
    pytest.param(Code.HEART_BEAT, "the heartbeat to 127.0.0.1:", False, id="heartbeat"),
    pytest.param(Code.GET_CONSUMER_LIST_BY_GROUP, "dividing the queues of orders", False, id="members"),
    pytest.param(Code.QUERY_CONSUMER_OFFSET, "reading the start offsets of orders", False, id="start offset"),
    pytest.param(Code.PULL_MESSAGE, "pulling orders/broker-a/", False, id="pull"),
    pytest.param(Code.LOCK_BATCH_MQ, "locking queues at broker-a", True, id="lock"),
    pytest.param(Code.UPDATE_CONSUMER_OFFSET, "storing offsets at broker-a", False, id="commit"),
]


@FAULTS
@pytest.mark.parametrize(("code", "work", "orderly"), WORKS)
async def test_a_request_that_fails_twice_is_a_warning_and_a_problem_until_it_works_again(
    stage: Stage, lines: Lines, jumping_clock: MockClock, code: int, work: str, orderly: bool, fault: Step, words: str
) -> None:
    async with consuming(stage, {code: fault}, orderly=orderly) as (consumer, mend):
        await lines.wait(logging.WARNING, work, words)
        # An offset that is not stored is a warning at once, and a problem with the second try.
        while not (present := [problem for problem in consumer.problems if problem.work.startswith(work)]):  # noqa: ASYNC110
            await trio.sleep(1)
        assert words in str(present[0])
        assert present[0].is_lasting is (fault is REFUSED)
        mend()
        await lines.wait(logging.INFO, work, "works again")
        assert [problem for problem in consumer.problems if problem.work.startswith(work)] == []


@FAULTS
async def test_a_route_that_cannot_be_polled_is_a_warning(
    stage: Stage, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    async with consuming(stage, {}) as (consumer, _):
        await stage.brokers["broker-a"].wait_seen(Code.PULL_MESSAGE)
        stage.nameserver.always(Code.GET_ROUTEINFO_BY_TOPIC, fault)
        await lines.wait(logging.WARNING, "refreshing the route of ", words)
        assert any("refreshing the route of" in problem.work for problem in consumer.problems)
        stage.nameserver.always(Code.GET_ROUTEINFO_BY_TOPIC, None)
        await lines.wait(logging.INFO, "refreshing the route of ", "works again")


@FAULTS
async def test_queues_of_a_watched_topic_that_cannot_be_compared_are_a_warning(
    stage: Stage, client: Client, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    work = "looking for changed queues of the watched topics"
    async with LitePullConsumer("billing", client=client) as consumer:
        await consumer.on_topic_changed("orders", lambda topic, queues: None)
        stage.nameserver.always(Code.GET_ROUTEINFO_BY_TOPIC, fault)
        line = await lines.wait(logging.WARNING, work)
        assert words in line or "was still under way" in line  # the poll of routes sends the same query meanwhile
        assert work in [problem.work for problem in consumer.problems]
        stage.nameserver.always(Code.GET_ROUTEINFO_BY_TOPIC, None)
        await lines.wait(logging.INFO, work, "works again")


async def test_a_list_of_nameservers_that_cannot_be_fetched_is_a_warning(
    lines: Lines, jumping_clock: MockClock, closed_port: str
) -> None:
    async with Client(nameserver_url=f"http://{closed_port}/list"):
        await lines.wait(logging.WARNING, f"fetching the list of NameServers from http://{closed_port}/list failed 2")


async def test_two_minutes_without_broker_and_nameserver_are_warnings(
    stage: Stage, client: Client, lines: Lines, jumping_clock: MockClock
) -> None:
    async with Producer("shop", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        began = trio.current_time()
        await stage.brokers["broker-a"].stop()
        await stage.nameserver.stop()
        await lines.wait(logging.WARNING, "the heartbeat to 127.0.0.1:", "connection refused")
        await lines.wait(logging.WARNING, "refreshing the route of orders", "no NameServer answered")
        assert trio.current_time() - began < 120


@FAULTS
async def test_a_group_that_a_broker_does_not_let_go_is_a_warning(
    stage: Stage, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    async with consuming(stage, {Code.UNREGISTER_CLIENT: fault}):
        await stage.brokers["broker-a"].wait_seen(Code.PULL_MESSAGE)
    await lines.wait(logging.WARNING, "group billing stays at a broker until the connection ends: ", words)


async def test_locks_that_cannot_be_given_back_are_a_warning(
    stage: Stage, lines: Lines, jumping_clock: MockClock
) -> None:
    """A one-way request has no answer, so that only a broker that cannot be reached is noticed."""
    async with consuming(stage, {}, orderly=True):
        await stage.brokers["broker-a"].wait_seen(Code.PULL_MESSAGE)
        await stage.brokers["broker-a"].stop()
    await lines.wait(logging.WARNING, "locks at broker-a were not given back, and expire there: ", "connection refused")


@FAULTS
async def test_subscriptions_that_cannot_be_compared_are_an_info_line_and_no_problem(
    stage: Stage, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    """A consumer with the right to read alone consumes all the same."""
    async with consuming(stage, {Code.GET_CONSUMER_CONNECTION_LIST: fault}) as (consumer, _):
        await lines.wait(logging.INFO, "the subscriptions of group billing cannot be compared: ", words)
        assert list(consumer.problems) == []


@FAULTS
async def test_trace_records_that_no_broker_stores_are_a_warning(
    stage: Stage, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    async with consuming(stage, {Code.SEND_MESSAGE_V2: fault}, trace="traces"):
        await lines.wait(logging.WARNING, "trace records were dropped, because they could not be sent: ", words)


@FAULTS
async def test_messages_that_cannot_be_given_back_are_a_warning(
    stage: Stage, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    faults: dict[int, Step] = {Code.CONSUMER_SEND_MSG_BACK: fault, Code.SEND_MESSAGE_V2: fault}
    async with consuming(stage, faults, fails=True):
        await lines.wait(logging.WARNING, "could not be given back and is consumed here again: ", words)


@FAULTS
async def test_messages_that_go_to_the_retry_topic_instead_are_an_info_line(
    stage: Stage, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    async with consuming(stage, {Code.CONSUMER_SEND_MSG_BACK: fault}, fails=True):
        await lines.wait(logging.INFO, "was not sent back and is sent to the retry topic instead: ", words)
        await stage.brokers["broker-a"].wait_seen(Code.SEND_MESSAGE_V2)


@FAULTS
async def test_a_request_whose_reply_a_broker_will_not_push_is_a_warning(
    stage: Stage, client: Client, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    """A broker pushes replies to clients that it has a heartbeat of."""
    stage.brokers["broker-a"].always(Code.HEART_BEAT, fault)
    async with Producer("shop", client=client) as producer:
        with pytest.raises(RequestTimeout):
            await producer.request(Message("orders", b"how many?"), timeout=10)
        await lines.wait(logging.WARNING, "the heartbeat to 127.0.0.1:", words)


@FAULTS
async def test_a_lite_pull_consumer_says_so_too(
    stage: Stage, client: Client, lines: Lines, jumping_clock: MockClock, fault: Step, words: str
) -> None:
    behave(stage, client)
    stage.brokers["broker-a"].always(Code.PULL_MESSAGE, fault)
    async with LitePullConsumer("billing", client=client, consume_from_where=FIRST) as consumer:
        assert list(consumer.problems) == []
        await consumer.subscribe("orders")
        await lines.wait(logging.WARNING, "pulling orders/broker-a/0", words)
        assert [problem.work for problem in consumer.problems] == ["pulling orders/broker-a/0"]


async def test_a_group_that_does_not_exist_is_named_with_the_remedy(
    stage: Stage, lines: Lines, jumping_clock: MockClock
) -> None:
    """A broker with autoCreateSubscriptionGroup=false takes the heartbeat, and passes over the group in it."""
    unknown = refuse(ResponseCode.SYSTEM_ERROR, "no consumer for this group, billing")
    async with consuming(stage, {Code.GET_CONSUMER_LIST_BY_GROUP: unknown}) as (consumer, _):
        line = await lines.wait(logging.WARNING, "dividing the queues of orders", "no consumer for this group, billing")
        assert "create the group (pyrmq group create billing)" in line
        assert [problem.is_lasting for problem in consumer.problems] == [True]


async def test_a_member_that_its_broker_does_not_list_is_a_warning(
    stage: Stage, lines: Lines, jumping_clock: MockClock
) -> None:
    others: Step = lambda request, peer: ConsumerList(("another",)).to_command()  # noqa: E731
    async with consuming(stage, {Code.GET_CONSUMER_LIST_BY_GROUP: others}) as (consumer, _):
        await lines.wait(logging.WARNING, "dividing the queues of orders", "do not include this one")
        assert len(consumer.problems) == 1


async def test_a_topic_without_a_route_is_a_warning_and_its_retry_topic_is_none(
    stage: Stage, lines: Lines, jumping_clock: MockClock
) -> None:
    del stage.table.routes["orders"], stage.table.routes["%RETRY%billing"]
    async with consuming(stage, {}) as (consumer, _):
        await lines.wait(logging.WARNING, "dividing the queues of orders", "No route info of this topic: orders")
        assert [problem.work for problem in consumer.problems] == ["dividing the queues of orders"]


async def test_a_broker_at_an_address_that_cannot_be_reached_is_a_problem(
    stage: Stage, lines: Lines, jumping_clock: MockClock, closed_port: str
) -> None:
    """Its brokerIP1 is one of another network, say."""
    (broker,) = stage.table.routes["orders"].broker_datas
    elsewhere = replace(broker, broker_addrs={0: closed_port})
    for topic in ("orders", "%RETRY%billing"):
        stage.table.routes[topic] = replace(stage.table.routes[topic], broker_datas=(elsewhere,))
    async with consuming(stage, {}) as (consumer, _):
        await lines.wait(logging.WARNING, f"the heartbeat to {closed_port}", "connection refused")
        await lines.wait(logging.WARNING, "dividing the queues of orders", "connection refused")
        assert not any(problem.is_lasting for problem in consumer.problems)


async def test_a_broker_without_a_master_locks_no_queues(stage: Stage, lines: Lines, jumping_clock: MockClock) -> None:
    route = stage.table.routes["orders"]
    (broker,) = route.broker_datas
    slave = replace(broker, broker_addrs={1: stage.brokers["broker-a"].address})
    for topic in ("orders", "%RETRY%billing"):
        stage.table.routes[topic] = replace(stage.table.routes[topic], broker_datas=(slave,))
    async with consuming(stage, {}, orderly=True):
        await lines.wait(logging.WARNING, "locking queues at broker-a", "has no master now")
