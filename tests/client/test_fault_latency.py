"""Fault latency as plain decisions: durations, the two rules, and a simulation of brokers that are slow, hung, dead."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import (
    BrokerNotFound,
    CallTimeout,
    CommunicationMode,
    ConnectFailed,
    FaultLatencySettings,
    MessageQueue,
    NoRoute,
    ProtocolError,
    ResponseError,
    RocketMQError,
)
from pyrmq_core.client.producer.send.fault_latency import FaultLatency, judged
from pyrmq_core.client.routing.publish_info import TopicPublishInfo

RELEASE_5 = FaultLatencySettings()
RELEASE_4 = FaultLatencySettings.release_4()


def made(settings: FaultLatencySettings = RELEASE_5, seed: int = 0) -> FaultLatency:
    return FaultLatency(settings, draw=random.Random(seed).randrange)


def info_of(*brokers: str, queues: int = 2, start: int = 0) -> TopicPublishInfo:
    all_queues = [MessageQueue("T", broker, number) for broker in brokers for number in range(queues)]
    return TopicPublishInfo("T", all_queues, counter_start=start)


# --- Durations: routing and producer sheet, 4 and 6.6


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        *((49, 0), (50, 0), (549, 0), (550, 2), (1799, 2), (1800, 5), (2999, 5), (3000, 6), (4999, 6), (5000, 10)),
        *((10000, 10), (14999, 10), (15000, 30), (99999, 30)),
    ],
)
def test_durations_of_5(milliseconds: int, seconds: float) -> None:
    assert RELEASE_5.not_available_seconds(milliseconds / 1000) == seconds


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        *((0, 0), (549, 0), (550, 30), (999, 30), (1000, 60), (1999, 60), (2000, 120), (2999, 120), (3000, 180)),
        *((14999, 180), (15000, 600), (30000, 600)),
    ],
)
def test_durations_of_4(milliseconds: int, seconds: float) -> None:
    assert RELEASE_4.not_available_seconds(milliseconds / 1000) == seconds


@given(st.floats(0, 100), st.floats(0, 100), st.sampled_from([RELEASE_5, RELEASE_4]))
def test_slower_is_never_shorter(first: float, second: float, settings: FaultLatencySettings) -> None:
    slow, fast = max(first, second), min(first, second)
    assert settings.not_available_seconds(slow) >= settings.not_available_seconds(fast)


# --- Items


def test_an_unknown_broker_is_available_and_reachable() -> None:
    faults = made()
    assert faults.is_available("a", 0)
    assert faults.is_reachable("a")


def test_an_isolated_broker_is_kept_away_from_for_ten_seconds() -> None:
    faults = made()
    faults.update("a", 0.003, isolation=True, reachable=True, now=100)
    assert not faults.is_available("a", 109.9)
    assert faults.is_available("a", 110)
    four = made(RELEASE_4)
    four.update("a", 0.003, isolation=True, reachable=True, now=100)
    assert not four.is_available("a", 699.9)
    assert four.is_available("a", 700)


def test_a_good_answer_ends_the_time_in_4_and_not_in_5() -> None:
    for settings, available in ((RELEASE_5, False), (RELEASE_4, True)):
        faults = made(settings)
        faults.update("a", 20, isolation=False, reachable=True, now=0)
        faults.update("a", 0.001, isolation=False, reachable=True, now=1)
        assert faults.is_available("a", 1) is available


def test_in_5_a_time_is_only_ever_extended() -> None:
    faults = made()
    faults.update("a", 20, isolation=False, reachable=True, now=0)  # until 30
    faults.update("a", 0.6, isolation=False, reachable=True, now=1)  # would be until 3
    assert not faults.is_available("a", 29.9)
    faults.update("a", 20, isolation=False, reachable=True, now=10)
    assert not faults.is_available("a", 39.9)
    assert faults.is_available("a", 40)


def test_a_clock_set_back_only_lengthens_or_keeps() -> None:
    faults = made()
    faults.update("a", 20, isolation=False, reachable=True, now=1000)
    faults.update("a", 20, isolation=False, reachable=True, now=0)
    assert not faults.is_available("a", 1029)
    assert faults.is_available("a", 1030)


# --- Rule of 5.x


def test_5_takes_the_available_ones_other_than_the_last() -> None:
    faults, info = made(), info_of("a", "b", "c")
    faults.update("b", 1, isolation=True, reachable=True, now=0)
    assert {faults.select(info, None, 1).broker_name for _ in range(20)} == {"a", "c"}
    assert {faults.select(info, "a", 1).broker_name for _ in range(20)} == {"c"}


def test_5_then_takes_reachable_ones_then_any() -> None:
    faults, info = made(), info_of("a", "b")
    faults.update("a", 1, isolation=True, reachable=True, now=0)
    faults.update("b", 1, isolation=True, reachable=False, now=0)
    assert {faults.select(info, None, 1).broker_name for _ in range(20)} == {"a"}
    faults.update("a", 1, isolation=True, reachable=False, now=0)
    assert {faults.select(info, None, 1).broker_name for _ in range(20)} == {"a", "b"}
    assert {faults.select(info_of("a"), "a", 1).broker_name for _ in range(3)} == {"a"}


def test_5_begins_anywhere_after_a_failure() -> None:
    """A retry goes on at a random place; a first try at the next one."""
    faults, info = made(), info_of("a", "b", queues=4)
    assert [faults.select(info, None, 0).queue_id for _ in range(4)] == [1, 2, 3, 0]
    assert len({faults.select(info, "a", 0).queue_id for _ in range(40)}) == 4


# --- Rule of 4.x


def test_4_takes_any_available_one_even_the_last() -> None:
    faults, info = made(RELEASE_4), info_of("a", "b")
    faults.update("b", 20, isolation=False, reachable=True, now=0)
    assert {faults.select(info, "a", 1).broker_name for _ in range(10)} == {"a"}


def test_4_takes_one_of_the_better_half_when_none_is_available() -> None:
    faults, info = made(RELEASE_4), info_of("a", "b", "c", "d", queues=3)
    for number, name in enumerate("abcd", 1):
        faults.update(name, number, isolation=True, reachable=True, now=0)
    chosen = [faults.select(info, None, 1) for _ in range(60)]
    assert {queue.broker_name for queue in chosen} == {"a", "b"}  # the faster half
    assert {queue.queue_id for queue in chosen} == {0, 1, 2}


def test_4_forgets_a_broker_that_has_no_queue() -> None:
    faults, info = made(RELEASE_4), info_of("a")
    faults.update("a", 20, isolation=False, reachable=True, now=0)
    faults.update("gone", 0.6, isolation=False, reachable=True, now=0)
    assert faults.select(info, None, 1).broker_name == "a"
    assert faults.is_available("gone", 1)


@pytest.mark.parametrize(("settings", "picked"), [(RELEASE_5, "b"), (RELEASE_4, "a")])
def test_the_least_bad(settings: FaultLatencySettings, picked: str) -> None:
    """5.x: any that is reachable; 4.x: by availability, latency, start."""
    faults = made(settings)
    assert faults.pick_one_at_least(0) is None
    faults.update("a", 1, isolation=True, reachable=False, now=0)
    faults.update("b", 2, isolation=True, reachable=True, now=0)
    assert {faults.pick_one_at_least(1) for _ in range(10)} == {picked}


# --- The detector's part


def test_addresses_that_are_due() -> None:
    faults = made()
    faults.update("a", 1, isolation=True, reachable=False, now=10)
    assert faults.due(10) == ["a"]
    assert faults.due(11.9) == []
    assert faults.due(12) == ["a"]
    faults.reached("a")
    assert faults.is_reachable("a")
    assert not faults.is_available("a", 13)
    faults.remove("a")
    assert faults.is_available("a", 13)
    faults.reached("a")  # nothing is known of it, nothing happens


# --- The times it learns from: the sheet's table

S, A, W = CommunicationMode.SYNC, CommunicationMode.ASYNC, CommunicationMode.ONEWAY
TIMEOUT = CallTimeout("late", address="a:1", request_left=True)


@pytest.mark.parametrize(
    ("error", "mode", "detector", "isolation", "reachable"),
    [
        (None, S, False, False, True),
        (None, A, True, False, True),
        (BrokerNotFound("x", broker_name="a"), S, False, False, True),
        (TIMEOUT, S, False, True, True),
        (TIMEOUT, S, True, True, False),
        (TIMEOUT, W, True, True, False),
        (TIMEOUT, A, True, True, True),
        (ConnectFailed("x", address="a:1"), S, False, True, True),
        (ProtocolError("x"), S, True, True, False),
        (ResponseError("x", code=14), S, False, True, False),
        (ResponseError("x", code=14), S, True, True, False),
        (ResponseError("x", code=14), A, False, True, True),
    ],
)
def test_how_an_end_is_judged(
    error: RocketMQError | None, mode: CommunicationMode, detector: bool, isolation: bool, reachable: bool
) -> None:
    assert judged(error, mode, detector=detector) == (isolation, reachable)


# --- Always a queue


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.floats(0, 40), st.booleans(), st.booleans(), st.floats(0, 100)),
        max_size=20,
    ),
    st.sampled_from(["a", "b", "x", None]),
    st.floats(0, 200),
    st.sampled_from([RELEASE_5, RELEASE_4]),
)
def test_whatever_happened_there_is_a_queue_of_the_topic(
    history: list[tuple[str, float, bool, bool, float]], last: str | None, now: float, settings: FaultLatencySettings
) -> None:
    faults, info = made(settings), info_of("a", "b", "c")
    for broker, latency, isolation, reachable, at in history:
        faults.update(broker, latency, isolation=isolation, reachable=reachable, now=at)
    for _ in range(5):
        assert faults.select(info, last, now) in info.queues


@pytest.mark.parametrize("settings", [RELEASE_5, RELEASE_4])
def test_no_queue_is_no_route(settings: FaultLatencySettings) -> None:
    with pytest.raises(NoRoute):
        made(settings).select(info_of(), None, 0)


# --- Simulation: eight brokers; one answers in 0.8 s, one never (3 s a try), one refuses connections

BROKERS = [f"broker-{letter}" for letter in "abcdefgh"]
SLOW, HUNG, DEAD = "broker-c", "broker-e", "broker-g"
SOUND_SECONDS, SLOW_SECONDS, HUNG_SECONDS, DEAD_SECONDS = 0.01, 0.8, 3.0, 0.001


def try_once(broker: str) -> tuple[float, RocketMQError | None]:
    if broker == HUNG:
        return HUNG_SECONDS, TIMEOUT
    if broker == DEAD:
        return DEAD_SECONDS, ConnectFailed("refused", address="g:1")
    return (SLOW_SECONDS if broker == SLOW else SOUND_SECONDS), None


def simulate(
    sends: int, select: Callable[[str | None, float], MessageQueue], learn: Callable[[str, float, object, float], None]
) -> tuple[Counter[str], Counter[str], float]:
    """Simulates one sender, one message after another, three tries each.

    Returns the tries by broker, the messages stored by broker, and the seconds.
    """
    tries: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    now = 0.0
    for _ in range(sends):
        last: str | None = None
        for _ in range(3):
            broker = select(last, now).broker_name
            tries[broker] += 1
            seconds, error = try_once(broker)
            now += seconds
            learn(broker, seconds, error, now)
            if error is None:
                stored[broker] += 1
                break
            last = broker
        else:
            stored["nowhere"] += 1
    return tries, stored, now


def run(settings: FaultLatencySettings | None, sends: int) -> tuple[Counter[str], Counter[str], float]:
    info, faults = info_of(*BROKERS, queues=4), made(settings or RELEASE_5)
    if settings is None:
        return simulate(sends, lambda last, now: info.select_one_message_queue(last), lambda *_: None)

    def learn(broker: str, seconds: float, error: object, now: float) -> None:
        failure = error if isinstance(error, RocketMQError) else None
        isolation, reachable = judged(failure, S, detector=False)
        faults.update(broker, seconds, isolation=isolation, reachable=reachable, now=now)

    return simulate(sends, lambda last, now: faults.select(info, last, now), learn)


def test_shares_with_the_rule_of_5() -> None:
    sends = 20_000
    tries, stored, seconds = run(RELEASE_5, sends)
    share = {name: tries[name] / sum(tries.values()) for name in BROKERS}
    for name in BROKERS:
        if name not in (SLOW, HUNG, DEAD):
            assert 0.17 < share[name] < 0.23, (name, share)  # a fifth each, of five sound ones
    # A try of the slow one buys 2 s without it, of the others 10 s.
    assert share[SLOW] < 0.006
    assert share[HUNG] < 0.002
    assert share[DEAD] < 0.002
    assert stored["nowhere"] == 0
    assert seconds < run(None, sends)[2] / 10


def test_shares_without_it() -> None:
    """Plain turns: the slow one is tried like the others; the hung one in each cycle, at 3 s, until the next broker."""
    tries, stored, seconds = run(None, 2000)
    share = {name: tries[name] / sum(tries.values()) for name in BROKERS}
    assert share[SLOW] > 0.1
    assert share[HUNG] > 0.03
    assert share[DEAD] > 0.03
    assert seconds > 2000 * 0.2
    assert stored["nowhere"] == 0


def test_shares_with_the_rule_of_4() -> None:
    tries, stored, _ = run(RELEASE_4, 20_000)
    share = {name: tries[name] / sum(tries.values()) for name in BROKERS}
    for name in BROKERS:
        if name not in (SLOW, HUNG, DEAD):
            assert 0.15 < share[name] < 0.25, (name, share)
    assert share[SLOW] < 0.001
    assert share[HUNG] < 0.001
    assert share[DEAD] < 0.001
    assert stored["nowhere"] == 0


def test_all_dead_is_tried_all_the_same() -> None:
    faults, info = made(), info_of("a", "b")
    for broker in ("a", "b"):
        faults.update(broker, 3, isolation=True, reachable=False, now=0)
    assert {faults.select(info, None, 1).broker_name for _ in range(10)} == {"a", "b"}


def test_a_broker_that_recovers_gets_its_share_again() -> None:
    faults, info = made(), info_of("a", "b")
    faults.update("a", 3, isolation=True, reachable=True, now=0)
    assert {faults.select(info, None, 9.9).broker_name for _ in range(8)} == {"b"}
    counts = Counter(faults.select(info, None, 10).broker_name for _ in range(100))
    assert counts["a"] == counts["b"] == 50
