"""The rules about what comes twice, over planted histories: what a recorded try or taking explains, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.checker import faults_of
from tests.chaos.history import ALL_CONSUMED, OURS, Beat, Booted, Event, Got, Outcome, Settled, Tried
from tests.chaos.repeats import ENDS_OF_MEMBERS, KEEP_NEWS_OUT, KEEP_OFFSETS_OUT, LOSE_ANSWERS
from tests.chaos.test_checker import COUNT, fault, good, got, only_fault, reset, send, settled, start, stored

# --- Copies


def tried(number: int, broker: str = "broker-a", *, is_unsure: bool = True) -> Tried:
    return Tried(number + 0.1, number + 0.2, f"plain-{number}", broker, is_unsure)


def test_a_second_copy_is_reported() -> None:
    assert "stored twice" in only_fault([*good(), stored(7, COUNT)])


@pytest.mark.parametrize("kind", LOSE_ANSWERS)
def test_a_second_copy_of_a_send_that_was_tried_again_after_a_lost_answer_is_right(kind: str) -> None:
    twice = [*good(), fault(kind, 7.2, 7.3), stored(7, COUNT)]
    assert faults_of([*twice, tried(7)]) == []
    assert "stored twice" in only_fault([*twice, tried(7, "broker-b")])
    assert "stored twice" in only_fault([*twice, tried(7, is_unsure=False)])
    assert "stored twice" in only_fault([*twice, tried(70)])


@pytest.mark.parametrize("kind", LOSE_ANSWERS)
def test_a_second_copy_of_a_send_that_was_tried_once_is_reported_amid_faults(kind: str) -> None:
    assert "stored twice" in only_fault([*good(), fault(kind, 7.2, 7.3), stored(7, COUNT)])


@pytest.mark.parametrize("kind", ["pause", "stall", "fill_disk"])
def test_a_second_copy_of_a_send_that_only_waited_is_reported(kind: str) -> None:
    assert "stored twice" in only_fault([*good(), fault(kind, 7, 9), tried(7), stored(7, COUNT)])


def test_each_lost_answer_explains_one_copy() -> None:
    thrice = [*good(), fault("cut", 7.2, 7.3), stored(7, COUNT), stored(7, COUNT + 1), tried(7)]
    assert "stored twice" in only_fault(thrice)
    assert faults_of([*thrice, tried(7)]) == []


def test_the_last_try_of_a_send_that_failed_is_the_first_copy() -> None:
    failed = [*good(send(7)), send(7, Outcome.PERHAPS_STORED), fault("cut", 7.2, 7.3), tried(7)]
    assert faults_of(failed) == []
    assert "stored twice" in only_fault([*failed, stored(7, COUNT)])
    assert faults_of([*failed, stored(7, COUNT), tried(7)]) == []


@pytest.mark.parametrize(("maker", "copies"), [("5.4.0", 0), (OURS, 1)])
def test_apaches_broker_alone_may_store_what_a_transaction_committed_twice(maker: str, copies: int) -> None:
    twice = [Booted("broker-a", maker), *good(send(7)), replace(send(7), is_in_transaction=True), stored(7, COUNT)]
    assert "".join(faults_of(twice)).count("stored twice") == copies
    assert "stored twice" in only_fault([Booted("broker-a", maker), *good(), stored(7, COUNT)])


def test_a_transaction_that_a_killed_broker_committed_twice_is_right() -> None:
    twice = [*good(send(7), got(7)), replace(send(7), is_in_transaction=True), stored(7, COUNT), got(7, 50.0)]
    assert faults_of([*twice, fault("kill", 49.0, 55.0)]) == []
    assert "stored twice" in only_fault([*twice, fault("kill", 49.0, 55.0, "broker-b")])
    assert "stored twice" in only_fault([*twice, fault("kill", 56.0, 57.0)])


def test_a_half_message_that_was_tried_twice_is_two_transactions() -> None:
    half = replace(send(7), is_in_transaction=True)
    twice = [*good(send(7)), half, stored(7, COUNT), fault("cut", 7.2, 7.3)]
    assert faults_of([*twice, tried(7)]) == []
    assert "stored twice" in only_fault(twice)


@pytest.mark.parametrize(("maker", "copies"), [("5.4.0", 0), (OURS, 1)])
def test_apaches_broker_alone_may_deliver_what_is_delayed_again_after_a_kill(maker: str, copies: int) -> None:
    delayed = replace(send(7), delay_seconds=0.1)
    twice = [Booted("broker-a", maker), *good(send(7)), delayed, stored(7, COUNT)]
    assert "stored twice" in only_fault(twice)
    assert "".join(faults_of([*twice, fault("kill", 100.0, 101.0)])).count("stored twice") == copies


# --- Deliveries

BEATS_A_SECOND = 4


def again(number: int, at: float, *events: Event, member: str = "two") -> list[Event]:
    """Returns a run in which one member has a queue from the begin, and a message comes a second time."""
    beats = [Beat(beat / BEATS_A_SECOND, name, 0.0) for name in ("one", "two") for beat in range(300 * BEATS_A_SECOND)]
    second = got(number, at, member=member)
    return [start(0.0, 0), *beats, *good(settled()), *events, second, Settled(100_000.0, ALL_CONSUMED)]


def slowly(events: list[Event], times: int) -> list[Event]:
    """Returns the run with members that turn their loops less often."""
    return [event for place, event in enumerate(events) if not isinstance(event, Beat) or place % times == 0]


@pytest.mark.parametrize("member", ["one", "two"])
def test_a_message_that_comes_again_from_a_queue_that_was_not_taken_is_reported(member: str) -> None:
    words = (
        f"plain-200 at 200 of ('plain', 'broker-a', 0) by one (201.00, in the queue since 0.00) and {member} (202.00, "
    )
    for kind in ("join", "leave", "kill", "cut"):
        assert words in only_fault(again(200, 202.0, fault(kind, 201.0, 201.5), member=member))


def test_a_message_that_was_consumed_just_before_its_queue_was_taken_is_right() -> None:
    assert faults_of(again(200, 205.0, start(204.0, 200, "two"))) == []
    assert faults_of(again(205, 211.0, start(205.5, 200, "two"))) == []  # 200 was not stored yet, so 205 comes, too
    assert "without a cause" in only_fault(again(200, 209.0, start(208.0, 200, "two")))
    assert faults_of(slowly(again(200, 209.0, start(208.0, 200, "two")), 2)) == []


def test_a_message_behind_one_that_was_not_consumed_is_right() -> None:
    held_back = [event for event in again(250, 300.0, start(299.0, 240, "two"), got(240, 400.0)) if event != got(240)]
    assert faults_of(held_back) == []
    assert "without a cause" in only_fault(again(250, 300.0, start(299.0, 240, "two")))


@pytest.mark.parametrize("is_first", [True, False], ids=["the earlier first", "the later first"])
def test_a_message_that_two_members_of_a_queue_consumed_is_right_until_the_earlier_hears(is_first: bool) -> None:
    """The earlier member has it from the begin, and the later took it some time before the message came."""

    def shared(taken_at: float, *events: Event) -> list[Event]:
        twice = again(200, 205.0, start(taken_at, int(taken_at), "two"), *events)
        return twice if is_first else [exchanged(event) for event in twice]

    def exchanged(event: Event) -> Event:
        if isinstance(event, Got) and event.offset == 200:
            return replace(event, member={"one": "two", "two": "one"}[event.member])
        return event

    assert faults_of(shared(190)) == []
    assert "without a cause" in only_fault(shared(170))
    assert faults_of(slowly(shared(170), 2)) == []
    assert "without a cause" in only_fault(slowly(shared(140), 2))
    assert faults_of(shared(190, fault("cut", 100, 101))) == []
    for kind in KEEP_NEWS_OUT:
        assert faults_of(shared(140, fault(kind, 145, 180, "another"))) == []
        assert "without a cause" in only_fault(shared(140, fault(kind, 145, 170, "another")))


def test_a_message_before_the_offset_that_was_found_is_reported() -> None:
    assert "without a cause" in only_fault(again(200, 205.0, start(204.0, 201, "two")))


@pytest.mark.parametrize("kind", KEEP_OFFSETS_OUT)
def test_a_message_whose_offset_a_broker_did_not_store_is_right(kind: str) -> None:
    assert faults_of(again(200, 250.0, start(249.0, 200, "two"), fault(kind, 202.0, 203.0))) == []
    assert "without a cause" in only_fault(
        again(200, 250.0, start(249.0, 200, "two"), fault(kind, 202.0, 203.0, "broker-b"))
    )
    assert "without a cause" in only_fault(again(200, 290.0, start(289.0, 200, "two"), fault(kind, 240.0, 241.0)))


@pytest.mark.parametrize("kind", ENDS_OF_MEMBERS)
def test_a_message_whose_offset_a_member_did_not_store_before_its_end_is_right(kind: str) -> None:
    assert faults_of(again(200, 250.0, start(249.0, 200, "two"), fault(kind, 202.0, 203.0, "one"))) == []
    assert "without a cause" in only_fault(
        again(200, 250.0, start(249.0, 200, "two"), fault(kind, 202.0, 203.0, "three"))
    )


@pytest.mark.parametrize("kind", ["kill", "cut_power"])
def test_a_message_whose_offset_a_broker_forgot_is_right(kind: str) -> None:
    assert faults_of(again(200, 250.0, start(249.0, 200, "two"), fault(kind, 214.0, 216.0))) == []
    assert "without a cause" in only_fault(again(200, 250.0, start(249.0, 200, "two"), fault(kind, 217.0, 218.0)))


def test_a_message_that_comes_again_after_a_reset_to_before_it_is_right() -> None:
    assert faults_of(again(200, 250.0, start(249.0, 200, "two"), reset(201.2, 201, 200))) == []
    for no_cause in (reset(251.0, 201, 200), reset(201.2, 201, 201), replace(reset(201.2, 201, 200), queue_id=1)):
        assert "without a cause" in "".join(faults_of(again(200, 250.0, start(249.0, 200, "two"), no_cause)))


def test_a_message_that_was_given_back_may_come_again_here() -> None:
    given_back = replace(got(200), kept=False)
    events = [event for event in again(200, 205.0, member="one") if event != got(200)]
    assert faults_of([given_back, *events]) == []
