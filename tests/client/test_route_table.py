"""Routes: looked up in RocketMQ's order, borrowed for unknown topics, kept fresh, and shared."""

import logging
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core import Client, Message, NoNameServer, NoRoute, Producer, ResponseError
from pyrmq_core.client.routes.route_table import Routes
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.errors import BrokerNotFound, RocketMQError
from pyrmq_core.protocol.framing.command import success
from tests.support.scripted import ROUTE, Step, after, answer, cut, later, refuse, route_of, silence, topics_asked
from tests.support.stage import Stage

GARBAGE = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


async def info_of(client: Client, topic: str, *, nums: int = 4, timeout: float = 3.0) -> TopicPublishInfo:
    return await client._session.routes.publish_info(
        topic, create_topic_key="TBW102", default_topic_queue_nums=nums, timeout=timeout
    )


# --- Look-up order and borrowed routes


async def test_a_known_topic_is_asked_for_once(stage: Stage, client: Client) -> None:
    first = await info_of(client, "orders")
    assert [str(queue) for queue in first.queues[:5]] == [f"orders/broker-a/{n}" for n in range(4)] + [
        "orders/broker-b/0"
    ]
    assert await info_of(client, "orders") is first
    assert topics_asked(stage.nameserver) == ["orders"]


async def test_an_unknown_topic_goes_over_tbw102(stage: Stage) -> None:
    """105 topic, not known; 105 TBW102; then the send with a queue id below four, c=TBW102 and d=4."""
    stage.auto_create()
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        await producer.send(Message("fresh", b"x"))
    assert topics_asked(stage.nameserver) == ["fresh", "TBW102"]
    ((_, request),) = stage.sends()
    assert 0 <= request.queue_id < 4
    assert (request.default_topic, request.default_topic_queue_nums) == ("TBW102", 4)


@pytest.mark.parametrize(("has", "wants", "expected"), [(8, 4, 4), (2, 4, 2), (8, 3, 3), (8, 8, 8)])
async def test_borrowed_queues_are_the_fewer_of_both(
    stage: Stage, client: Client, has: int, wants: int, expected: int
) -> None:
    stage.auto_create(queues=has)
    info = await info_of(client, "fresh", nums=wants)
    assert info.borrowed
    assert len(info.queues) == 2 * expected
    assert {queue.topic for queue in info.queues} == {"fresh"}


async def test_a_borrowed_route_serves_until_the_next_poll(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """Java does the same: every broker gets some of the first messages, creates the topic, and is then in its route."""
    stage.auto_create()
    async with Producer("g", client=client) as producer:
        for _ in range(8):
            await producer.send(Message("fresh", b"1"))
        assert {broker for broker, _ in stage.sends()} == {"broker-a", "broker-b"}
        assert topics_asked(stage.nameserver) == ["fresh", "TBW102"]
        await trio.sleep(31)
        assert topics_asked(stage.nameserver) == ["fresh", "TBW102", "fresh"]
        info = await producer.publish_info("fresh")
    assert not info.borrowed
    assert {queue.broker_name for queue in info.queues} == {"broker-a", "broker-b"}
    assert len(stage.stored("fresh")) == 8


async def test_a_topic_that_does_not_exist_borrows_again_after_the_poll(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """Brokers that came meanwhile get some too."""
    stage.topic("TBW102", brokers=["broker-a"])
    assert {queue.broker_name for queue in (await info_of(client, "fresh")).queues} == {"broker-a"}
    stage.auto_create()
    assert {queue.broker_name for queue in (await info_of(client, "fresh")).queues} == {"broker-a"}
    await trio.sleep(31)
    assert {queue.broker_name for queue in (await info_of(client, "fresh")).queues} == {"broker-a", "broker-b"}


async def test_a_failure_asks_for_the_borrowed_topic_again(stage: Stage) -> None:
    """A broker that is gone from TBW102's route gets nothing more."""
    stage.auto_create()
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        await producer.publish_info("fresh")
        await stage.brokers["broker-a"].stop()
        stage.topic("TBW102", brokers=["broker-b"])
        for _ in range(8):
            await producer.send(Message("fresh", b"1"))
    assert {broker for broker, _ in stage.sends()} == {"broker-b"}
    assert len(stage.stored("fresh")) == 8


async def test_many_first_sends_ask_once(stage: Stage, client: Client) -> None:
    stage.auto_create()
    infos: list[TopicPublishInfo] = []

    async def ask() -> None:
        infos.append(await info_of(client, "fresh"))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
    assert topics_asked(stage.nameserver) == ["fresh", "TBW102"]
    assert len({id(info) for info in infos}) == 1  # one counter: they take turns


async def test_borrowed_queues_serve_on_without_a_nameserver(stage: Stage, client: Client) -> None:
    stage.auto_create()
    borrowed = await info_of(client, "fresh")
    await stage.nameserver.stop()
    assert await info_of(client, "fresh") is borrowed


async def test_without_auto_creation_there_is_no_route(stage: Stage, client: Client) -> None:
    with pytest.raises(NoRoute) as caught:
        await info_of(client, "fresh")
    assert caught.value.topic == "fresh"
    text = str(caught.value)
    for part in (
        "No route info of this topic: fresh",
        stage.nameserver.address,
        "autoCreateTopicEnable",
        "pyrmq topic create fresh",
    ):
        assert part in text
    assert "\n" not in text


# --- Kept fresh


async def test_routes_are_asked_for_every_30_seconds(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    began = trio.current_time()
    await info_of(client, "orders")
    await client._session.routes.route("orders")
    await trio.sleep(95)
    requested = [at - began for at in stage.nameserver.times_of(ROUTE)]
    assert requested == pytest.approx([0, 30, 60, 90], abs=0.5)


async def test_a_query_keeps_no_route_to_poll(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    routes = client._session.routes
    route = await routes.query("orders")
    assert route is not None
    await trio.sleep(95)
    assert topics_asked(stage.nameserver) == ["orders"]
    assert (routes.known_topics, routes.brokers, routes.answers("orders")) == ((), (), 0)
    await routes.route("orders")
    await routes.query("orders")
    assert (routes.known_topics, routes.answers("orders")) == (("orders",), 2)


async def test_a_changed_route_is_used_from_the_next_round_on(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    before = await info_of(client, "orders")
    stage.topic("orders", brokers=["broker-b"], queues=2)
    assert await info_of(client, "orders") is before
    await trio.sleep(31)
    now = await info_of(client, "orders")
    assert [str(queue) for queue in now.queues] == ["orders/broker-b/0", "orders/broker-b/1"]


async def test_an_unchanged_route_keeps_its_walk(stage: Stage, client: Client) -> None:
    """A new start at each round would send everything to the first queues."""
    before = await info_of(client, "orders")
    route = stage.table.routes["orders"]
    stage.table.routes["orders"] = replace(
        route, queue_datas=route.queue_datas[::-1], broker_datas=route.broker_datas[::-1]
    )
    await client._session.routes.refresh("orders")
    assert await info_of(client, "orders") is before


async def test_a_topic_that_stopped_existing_keeps_its_last_route(stage: Stage, client: Client) -> None:
    before = await info_of(client, "orders")
    del stage.table.routes["orders"]
    await client._session.routes.refresh("orders")
    assert await info_of(client, "orders") is before


async def test_a_failed_try_asks_for_the_route_again(stage: Stage) -> None:
    """The broker moved: its old address is dead, and the second try finds the new one."""
    stage.topic("solo", brokers=["broker-a"])
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        await producer.send(Message("solo", b"1"))
        await stage.brokers["broker-a"].stop()
        stage.table.routes["solo"] = route_of({"broker-a": stage.addresses["broker-b"]})
        await producer.send(Message("solo", b"2"))
    assert topics_asked(stage.nameserver) == ["solo", "solo"]
    assert [broker for broker, _ in stage.sends()] == ["broker-a", "broker-b"]


async def test_a_round_that_fails_never_ends_the_next(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    await info_of(client, "orders")
    stage.nameserver.on(ROUTE, refuse(1), cut, cut, answer(success(body=b"no route")))
    await trio.sleep(125)
    stage.topic("orders", queues=1)
    await trio.sleep(31)
    assert len((await info_of(client, "orders")).queues) == 2


@pytest.mark.parametrize("work", ["routes.refresh_all", "heartbeats.send_round"])
async def test_not_even_an_unforeseen_failure_ends_the_next_round(
    work: str,
    client: Client,
    jumping_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    began: list[float] = []

    async def failing() -> None:
        began.append(trio.current_time())
        raise ArithmeticError("not foreseen")

    room, _, name = work.partition(".")
    monkeypatch.setattr(getattr(client._session, room), name, failing)
    await trio.sleep(95)
    assert len(began) >= 3
    assert "failed, and will be tried again: ArithmeticError: not foreseen" in caplog.text


async def test_one_topics_failure_does_not_hold_up_the_others(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    for topic in ("orders", "audit", "logs"):
        stage.topic(topic)
        await info_of(client, topic)

    for topic in ("orders", "audit", "logs"):
        stage.topic(topic, queues=1)
    # Whichever topic is first fails at once; the others' answers are under way by then.
    stage.nameserver.on(ROUTE, refuse(1), later(0.5, stage.table), later(0.5, stage.table))
    await trio.sleep(31)
    sizes = sorted([len((await info_of(client, topic)).queues) for topic in ("orders", "audit", "logs")])
    assert sizes == [2, 2, 8]


async def test_brokers_that_no_route_names_are_forgotten(stage: Stage, client: Client) -> None:
    await info_of(client, "orders")
    stage.topic("orders", brokers=["broker-b"])
    await client._session.routes.refresh("orders")
    assert client._session.routes.broker("broker-a").master == stage.addresses["broker-a"]
    client._session.routes.forget_offline_brokers()
    assert [broker.broker_name for broker in client._session.routes.brokers] == ["broker-b"]
    with pytest.raises(BrokerNotFound, match=r"no known route names broker broker-a; .*known: broker-b"):
        client._session.routes.broker("broker-a")


async def test_a_stale_route_brings_no_old_address_back(stage: Stage, client: Client) -> None:
    """A topic that stopped existing keeps a route with a broker's old address; the newer one stays."""
    stage.topic("gone")
    await info_of(client, "orders")
    await info_of(client, "gone")
    del stage.table.routes["gone"]
    stage.table.routes["orders"] = route_of({"broker-a": "127.0.0.1:1", "broker-b": stage.addresses["broker-b"]})
    await client._session.routes.refresh("orders")
    client._session.routes.forget_offline_brokers()
    assert client._session.routes.broker("broker-a").master == "127.0.0.1:1"


# --- One look-up a topic at a time


async def test_questions_of_one_topic_are_shared(stage: Stage, client: Client) -> None:
    release = trio.Event()
    stage.nameserver.on(ROUTE, after(release, stage.table))
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client._session.routes.refresh, "orders")
        nursery.start_soon(client._session.routes.route, "orders")
        await stage.nameserver.wait_seen(ROUTE)
        release.set()
    assert topics_asked(stage.nameserver) == ["orders"]
    await client._session.routes.refresh("orders")
    assert topics_asked(stage.nameserver) == ["orders", "orders"]


async def test_topics_do_not_wait_for_each_other(stage: Stage, client: Client) -> None:
    stage.topic("audit")
    stage.nameserver.on(ROUTE, silence)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client._session.routes.refresh, "orders")
        await stage.nameserver.wait_seen(ROUTE)
        await info_of(client, "audit")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("step", "kind", "seconds"), [(silence, NoNameServer, 3.0), (later(1.0, refuse(1, "oops")), ResponseError, 1.0)]
)
async def test_a_failure_is_shared_too(
    stage: Stage, client: Client, jumping_clock: MockClock, step: Step, kind: type[RocketMQError], seconds: float
) -> None:
    """Fifty senders and one NameServer that fails: one request, and all senders get its error at once."""
    stage.nameserver.always(ROUTE, step)
    began = trio.current_time()
    failures: list[RocketMQError] = []

    async def ask() -> None:
        try:
            await info_of(client, "orders")
        except RocketMQError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)
    assert [type(failure) for failure in failures] == [kind] * 50
    assert len(stage.nameserver.of(ROUTE)) == 1
    assert all(stage.nameserver.address in str(failure) for failure in failures)


async def test_an_impatient_question_does_not_fail_a_patient_one(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.nameserver.on(ROUTE, silence)

    async def impatient() -> None:
        with pytest.raises(NoNameServer):
            await info_of(client, "orders", timeout=0.3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(impatient)
        await stage.nameserver.wait_seen(ROUTE)
        assert len((await info_of(client, "orders", timeout=3)).queues) == 8


async def test_a_caller_behind_a_question_keeps_its_own_time(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.nameserver.always(ROUTE, silence)

    async def patient() -> None:
        with pytest.raises(NoNameServer):
            await info_of(client, "orders", timeout=30)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(patient)
        await stage.nameserver.wait_seen(ROUTE)
        began = trio.current_time()
        with pytest.raises(NoNameServer, match=rf"route of orders was still under way .*{stage.nameserver.address}"):
            await info_of(client, "orders", timeout=1)
        assert trio.current_time() - began == pytest.approx(1.0, abs=0.1)


async def test_a_cancelled_question_is_asked_by_the_next(stage: Stage, client: Client) -> None:
    stage.nameserver.on(ROUTE, silence)
    async with trio.open_nursery() as nursery:
        scope = await nursery.start(_cancellable, client._session.routes)
        await stage.nameserver.wait_seen(ROUTE)
        nursery.start_soon(info_of, client, "orders")
        scope.cancel()
    assert topics_asked(stage.nameserver) == ["orders", "orders"]


async def _cancellable(routes: Routes, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await routes.refresh("orders")


async def test_a_cancelled_question_is_no_answer_for_those_behind_it(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """The first fails, the second is cancelled: the third, which waited for both, asks by itself."""
    stage.nameserver.on(ROUTE, silence, silence)

    async def impatient() -> None:
        with pytest.raises(NoNameServer):
            await client._session.routes.refresh("orders", timeout=0.3)

    async def patient() -> None:
        assert await client._session.routes.refresh("orders") is not None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(impatient)
        await stage.nameserver.wait_seen(ROUTE)
        scope = await nursery.start(_cancellable, client._session.routes)
        await wait_all_tasks_blocked()
        nursery.start_soon(patient)
        await stage.nameserver.wait_seen(ROUTE, 2)
        scope.cancel()
    assert len(stage.nameserver.of(ROUTE)) == 3
