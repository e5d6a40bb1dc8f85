"""The checker over planted histories: each broken promise is reported, and what promises allow is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.checker import HELD, already_wrong, faults_of, missing
from tests.chaos.history import (
    ALL_CONSUMED,
    OURS,
    OUT_OF_TIME,
    STOOD_STILL,
    Beat,
    Booted,
    Copied,
    Counted,
    Deleted,
    Denied,
    Event,
    Fault,
    Got,
    Hung,
    Outcome,
    Reset,
    Send,
    Settled,
    Start,
    Stored,
    Subscribed,
    Tried,
    event_of,
    line_of,
)
from tests.chaos.judged import History as Judged
from tests.chaos.plan import SORTERS

COUNT = 600


def send(number: int, outcome: Outcome = Outcome.STORED) -> Send:
    return Send(number, number + 0.5, "plain", f"plain-{number}", outcome)


def stored(number: int, offset: int | None = None) -> Stored:
    return Stored("plain", "broker-a", 0, number if offset is None else offset, f"plain-{number}")


def got(number: int, at: float | None = None, *, tries: int = 0, kept: bool = True, member: str = "one") -> Got:
    at = number + 1.0 if at is None else at
    return Got(at, "workers", member, "plain", "broker-a", 0, number, f"plain-{number}", tries, kept)


def reset(at: float, before: int, after: int) -> Reset:
    return Reset(at, at + 0.1, "workers", "plain", "broker-a", 0, before, after)


def settled(how: str = ALL_CONSUMED) -> Settled:
    return Settled(10_000.0, how)


def fault(kind: str, began: float, ended: float, target: str = "broker-a") -> Fault:
    return Fault(began, ended, kind, target)


def good(*without: object) -> list[Event]:
    """Returns a run in which each message is sent, stored and consumed once."""
    events: list[Event] = []
    for number in range(COUNT):
        events += [send(number), stored(number), got(number)]
    return [event for event in [*events, settled()] if event not in without]


def only_fault(events: list[Event]) -> str:
    (fault,) = faults_of(events)
    return fault


def test_a_good_run_has_no_fault() -> None:
    assert faults_of(good()) == []


def test_events_come_back_from_their_lines() -> None:
    events = [
        Booted("broker-a", OURS),
        *good(),
        Beat(1.0, "one", 0.5),
        Hung(2.0, "one", "stands"),
        fault("cut", 1, 2),
        Deleted(3.0, 4.0, "fleeting"),
        Denied(3.0, 4.0, "plain"),
        Counted("a stream", 100, ""),
        Tried(3.0, 4.0, "plain-7", "broker-a", True),
        Start(3.0, "workers", "one", "plain", "broker-a", 0, 7),
        reset(1.0, 2, 3),
    ]
    assert [event_of(line_of(event)) for event in events] == events


# --- Nothing is lost


def test_a_message_that_no_member_consumed_is_lost() -> None:
    events = [*good(got(7), settled()), settled(STOOD_STILL)]
    assert "never consumed 1 acknowledged messages" in only_fault(events)
    assert "plain-7" in only_fault(events)


def test_a_message_that_was_only_given_back_is_lost() -> None:
    assert "plain-7" in only_fault([*good(got(7)), got(7, kept=False)])


def test_a_message_that_was_given_back_and_consumed_later_is_right() -> None:
    again = replace(got(7, 900.0, tries=1), topic="%RETRY%workers")
    assert faults_of([*good(got(7)), got(7, kept=False), again]) == []


def test_a_group_that_consumed_nothing_lost_everything() -> None:
    sent = [event for event in good() if not isinstance(event, Got)]
    assert f"never consumed {COUNT}" in only_fault([Subscribed("workers"), *sent])


def test_a_message_that_no_queue_holds_is_lost() -> None:
    assert "are not stored: ['plain-7']" in only_fault(good(stored(7)))


def test_what_a_slow_machine_did_not_deliver_in_time_is_no_fault() -> None:
    delayed = replace(send(7), delay_seconds=2.0)
    assert faults_of([*good(send(7), stored(7), got(7), settled()), delayed, settled(OUT_OF_TIME)]) == []
    assert len(faults_of([*good(send(7), stored(7), got(7)), delayed])) == 2


def test_what_a_slow_machine_did_not_consume_in_time_is_no_fault() -> None:
    assert faults_of([*good(got(7), settled()), settled(OUT_OF_TIME)]) == []


def test_a_message_whose_send_failed_may_be_missing() -> None:
    for outcome in (Outcome.NOT_STORED, Outcome.PERHAPS_STORED):
        assert faults_of([*good(send(7), stored(7), got(7)), send(7, outcome)]) == []


def test_a_deleted_message_may_be_missing_and_may_not_come_back() -> None:
    deleted = Deleted(8.0, 8.1, "plain")
    gone = [event for number in range(8) for event in (stored(number), got(number))]
    assert faults_of([*good(*gone), deleted]) == []
    assert "1 messages are stored that were deleted with their topic: ['plain-7']" in only_fault(
        [*good(*gone), stored(7), deleted]
    )
    assert "1 acknowledged messages are not stored" in only_fault([*good(*gone, stored(8)), deleted])


def test_the_first_messages_of_a_topic_that_is_made_again_may_be_passed_over_beside_other_faults() -> None:
    events = [*good(*(stored(number) for number in range(8)), got(8)), Deleted(8.0, 8.1, "plain")]
    assert "never consumed 1 acknowledged messages" in only_fault([*events, fault("remake", 7.9, 8.2)])
    assert faults_of([*events, fault("pause", 1.0, 2.0)]) == []


# --- Nothing is invented


def test_a_message_that_was_never_sent_is_reported() -> None:
    assert "never sent" in only_fault(good(send(7)))


def test_a_message_whose_send_said_not_stored_is_reported() -> None:
    assert "said not stored" in only_fault([*good(send(7)), send(7, Outcome.NOT_STORED)])


def test_a_message_whose_send_is_under_way_may_be_consumed() -> None:
    assert already_wrong(good(send(7), settled())) == []


def test_a_message_that_was_rolled_back_and_consumed_is_reported_at_once() -> None:
    rolled_back = send(7, Outcome.ROLLED_BACK)
    assert faults_of([*good(send(7), stored(7), got(7)), rolled_back]) == []
    assert "that are rolled back: ['plain-7']" in "".join(already_wrong([*good(send(7), settled()), rolled_back]))


def test_a_delayed_message_that_comes_early_is_reported() -> None:
    delayed = replace(send(7), delay_seconds=2.0)
    assert faults_of([*good(send(7), got(7)), delayed, got(7, 9.0)]) == []
    early = [*good(send(7), got(7)), delayed, got(7, 8.9)]
    assert "were consumed too early, by seconds: [('plain-7', 0.09)]" in only_fault(early)


def test_a_delayed_message_that_comes_early_by_a_step_of_the_clock_is_right() -> None:
    early = [*good(send(7), got(7)), replace(send(7), delay_seconds=2.0), got(7, 7.5)]
    assert faults_of([*early, fault("step_clock", 6.9, 9.0)]) == []
    assert "too early, by seconds: [('plain-7', 0.39)]" in only_fault([*early, fault("step_clock", 6.0, 7.1)])
    assert "were consumed too early" in only_fault([*early, fault("step_clock", 5.0, 6.9)])


# --- Access


def test_a_send_that_every_broker_refused_says_so() -> None:
    denied = Denied(6.5, 8.0, "plain")
    refused = [*good(send(7), stored(7), got(7)), denied]
    assert faults_of([*refused, send(7, Outcome.NOT_STORED)]) == []
    assert "1 sends that were refused did not say so: [('plain-7', 'stored')]" in "".join(
        faults_of([*refused, send(7)])
    )
    assert "did not say so" in only_fault([*refused, send(7, Outcome.PERHAPS_STORED)])
    assert faults_of([*refused, send(7, Outcome.PERHAPS_STORED), fault("pause", 6.0, 9.0)]) == []
    assert faults_of([*good(), Denied(7.1, 8.0, "plain"), Denied(6.5, 8.0, "packed")]) == []


def test_a_send_that_said_not_stored_and_is_stored_is_reported() -> None:
    assert "said not stored" in only_fault([*good(send(7), got(7)), send(7, Outcome.NOT_STORED)])


# --- Order


def keyed(number: int) -> Send:
    return replace(send(number), key="key-1")


def test_messages_of_a_key_that_are_stored_in_another_order_are_reported() -> None:
    keys = [keyed(7), keyed(8)]
    assert faults_of([*good(send(7), send(8)), *keys]) == []
    assert "plain-8 is stored at 7" in only_fault(
        [*good(send(7), send(8), stored(7), stored(8)), *keys, stored(7, 8), stored(8, 7)]
    )
    elsewhere = replace(stored(8, 7), queue_id=1)
    assert faults_of([*good(send(7), send(8), stored(8)), *keys, elsewhere]) == []


def test_a_message_that_the_group_in_order_consumed_late_is_reported() -> None:
    sorted_ = [replace(event, group=SORTERS) if isinstance(event, Got) else event for event in good()]
    assert faults_of(sorted_) == []
    late = replace(got(7, 9.5), group=SORTERS)
    without = [event for event in sorted_ if not (isinstance(event, Got) and event.offset == 7)]
    assert "plain-7 at 7 of ('plain', 'broker-a', 0) was consumed behind 8" in only_fault([*without, late])


# --- Retries


def test_a_retry_of_what_was_not_given_back_is_reported() -> None:
    assert "retried that no handler gave back" in only_fault([*good(), got(7, 900.0, tries=1)])


# --- Resets


def consumed(first: int, last: int, at: float) -> list[Event]:
    return [got(number, at + number / COUNT) for number in range(first, last)]


def start(at: float, offset: int, member: str = "one") -> Start:
    return Start(at, "workers", member, "plain", "broker-a", 0, offset)


def run_of(*events: Event) -> list[Event]:
    """Returns a run in which a member has the queue from the begin, and anew behind each reset."""
    sent = [event for number in range(COUNT) for event in (send(number), stored(number))]
    resets = [start(event.ended, event.after) for event in events if isinstance(event, Reset)]
    return [*sent, start(0.0, 0), *resets, *events, settled()]


def test_a_reset_to_the_end_that_is_followed_is_right() -> None:
    behind = 100 + HELD
    assert (
        faults_of(run_of(*consumed(0, 100, 1), reset(5, 100, 500), *consumed(100, behind, 6), *consumed(500, COUNT, 7)))
        == []
    )


def test_a_reset_to_the_end_that_is_swallowed_is_reported_at_once() -> None:
    swallowed = run_of(*consumed(0, 100, 1), reset(5, 100, 500), *consumed(100, 101 + HELD, 6))
    assert "behind its reset to 500" in "".join(already_wrong(swallowed[:-1]))


def test_a_reset_back_that_is_followed_is_right() -> None:
    assert faults_of(run_of(*consumed(0, 400, 1), reset(5, 400, 50), *consumed(50, COUNT, 6))) == []


def test_a_reset_back_that_is_swallowed_loses_the_replay() -> None:
    swallowed = run_of(*consumed(0, 400, 1), reset(5, 400, 50), *consumed(400, COUNT, 6))
    assert "never consumed 350 acknowledged messages" in only_fault(swallowed)
    assert missing(Judged(swallowed))["workers"][0] == "plain-50"


def test_a_replay_owes_again_what_a_reset_to_the_end_passed_over() -> None:
    skipped = [*consumed(0, 100, 1), reset(5, 100, 500), *consumed(500, COUNT, 6)]
    assert faults_of(run_of(*skipped)) == []
    assert "never consumed 400" in only_fault(run_of(*skipped, reset(8, COUNT, 100), *consumed(500, COUNT, 9)))
    assert faults_of(run_of(*skipped, reset(8, COUNT, 100), *consumed(100, COUNT, 9))) == []


def test_a_reset_that_a_killed_broker_forgot_is_no_fault() -> None:
    for after in (500, 50):
        forgotten = (*consumed(0, 400, 1), reset(5, 400, after), fault("kill", 5.5, 8), *consumed(400, COUNT, 9))
        assert faults_of(run_of(*forgotten)) == []


def test_a_reset_back_that_a_killed_broker_forgot_owes_nothing_that_one_to_the_end_passed_over() -> None:
    skipped = [*consumed(0, 100, 1), reset(5, 100, 500), *consumed(500, COUNT, 6)]
    assert faults_of(run_of(*skipped, reset(8, COUNT, 50), fault("kill", 8.5, 9))) == []


@pytest.mark.parametrize("after", [500, 50])
def test_a_reset_that_apaches_broker_gave_to_one_of_two_members_is_no_fault(after: int) -> None:
    swallowed = (*consumed(0, 100, 4), reset(5, 100, after), *consumed(100, COUNT, 6))
    by_two = [*swallowed, start(5.0, 99, "two"), got(99, 5.2, member="two")]
    assert faults_of([Booted("broker-a", "5.4.0"), *run_of(*by_two)]) == []


def test_a_reset_that_apaches_broker_gave_to_a_pull_that_it_held_is_no_fault() -> None:
    by_two = (start(4.8, 399, "two"), got(399, 5.0, member="two"))
    held = run_of(*consumed(0, 400, 4), *by_two, reset(20, 400, 50), *consumed(400, COUNT, 30))
    assert faults_of([Booted("broker-a", "5.4.0"), *held]) == []


def test_a_reset_that_apaches_broker_gave_to_a_connection_that_was_cut_is_no_fault() -> None:
    swallowed = run_of(*consumed(0, 400, 1), reset(20, 400, 50), *consumed(400, COUNT, 30))
    assert faults_of([Booted("broker-a", "5.4.0"), *swallowed, fault("cut", 18.0, 18.0)]) == []
    for no_cause in (fault("cut", 18.0, 18.0, "broker-b"), fault("cut", 21.0, 21.0)):
        assert "never consumed 350" in only_fault([Booted("broker-a", "5.4.0"), *swallowed, no_cause])
    assert "never consumed 350" in only_fault([*swallowed, fault("cut", 18.0, 18.0)])


@pytest.mark.parametrize(("maker", "member", "at"), [("5.4.0", "one", 5.2), ("5.4.0", "two", 9), (OURS, "two", 5.2)])
def test_a_reset_back_that_is_swallowed_is_reported_of_one_member_and_of_ours(
    maker: str, member: str, at: float
) -> None:
    swallowed = run_of(*consumed(0, 400, 4), reset(5, 400, 50), got(400, at, member=member), *consumed(401, COUNT, 9))
    assert "never consumed 350 acknowledged messages" in only_fault([Booted("broker-a", maker), *swallowed])


def test_what_a_promoted_slave_has_where_a_group_read_lost_messages_may_be_passed_over() -> None:
    lost = replace(got(7), id="plain-lost")
    sent = replace(send(7), id="plain-lost", outcome=Outcome.PERHAPS_STORED)
    events = [*good(got(7)), sent, lost]
    assert "never consumed 1 acknowledged messages" in only_fault(events)
    assert faults_of([*events, fault("promote", 7.0, 9.0)]) == []
    assert "never consumed 1" in only_fault([*good(got(7)), fault("promote", 7.0, 9.0)])
    assert "never consumed 1" in only_fault([*events, fault("promote", 7.0, 9.0, "broker-b")])


def test_what_was_given_back_to_a_master_that_was_lost_may_be_lost() -> None:
    events = [*good(got(7)), got(7, kept=False)]
    assert faults_of([*events, fault("promote", 7.0, 9.0)]) == []
    assert "never consumed 1" in only_fault([*events, fault("promote", 8.5, 9.0)])
    assert "never consumed 1" in only_fault([*events, fault("promote", 7.0, 7.5)])


# --- Slaves


def test_a_slave_that_is_no_copy_is_reported() -> None:
    assert faults_of([*good(), Copied("slave-a", 100, "")]) == []
    assert "slave-a is no copy of its master: its end" in only_fault([*good(), Copied("slave-a", 100, "its end")])


# --- Committed streams


def test_a_reader_that_lacks_a_committed_row_is_reported() -> None:
    assert faults_of([*good(), Counted("a stream", 100, "")]) == []
    assert "a stream of 99 committed rows: 1 is lost" in only_fault([*good(), Counted("a stream", 99, "1 is lost")])


# --- Members


def test_a_member_that_hangs_is_reported() -> None:
    assert only_fault([*good(), Hung(5.0, "one", "did not leave")]) == "one did not leave"
