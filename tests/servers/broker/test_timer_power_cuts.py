"""Timer messages over power cuts, which take any of the pages that are not synced."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC
from tests.servers.broker.timer_stores import START_MS, timed_store


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(-100, 6000)),
            st.tuples(st.just("pass"), st.integers(0, 2500)),
            st.tuples(st.just("step"), st.integers(1, 3)),
            st.tuples(st.just("back"), st.integers(1, 6000)),
            st.tuples(st.sampled_from(("flush", "save", "cut", "cut")), st.integers(0, 1 << 20)),
            st.tuples(st.sampled_from(("kill", "restart", "stopping")), st.just(0)),
        ),
        max_size=20,
    )
)
@settings(deadline=None, max_examples=100)
def test_a_power_cut_loses_no_message_that_is_on_the_medium(steps: list[tuple[str, int]]) -> None:
    """Any of the pages that are not synced are lost; what is left of the messages is delivered, each of them once."""
    with timed_store(forgetful=True) as timed:
        sent: list[bytes] = []
        kept: set[bytes] = set()  # synced
        alive: set[bytes] = set()  # not lost by a power cut
        last_ms = START_MS  # the latest time at which one is due
        for what, number in steps:
            match what:
                case "send":
                    sent.append(b"%d" % len(sent))
                    alive.add(sent[-1])
                    last_ms = max(last_ms, timed.now_ms + number)
                    timed.send(sent[-1], {"TIMER_DELIVER_MS": str(timed.now_ms + number)})
                case "pass":
                    timed.run_until(timed.now_ms + number)
                case "step":
                    timed.now_ms += 400
                    for _ in range(number):
                        timed.timers.work(timed.now_ms)
                case "back":
                    timed.now_ms -= number
                case "flush":
                    timed.store.flush()
                    kept |= alive
                case "save":
                    timed.save()
                    kept |= alive
                case "kill":
                    timed.kill()
                case "stopping":
                    timed.kill_while_stopping()
                case "restart":
                    timed.restart()
                    kept |= alive
                case _:
                    alive = set(kept)
                    timed.power_cut(random.Random(number).choice((lambda _: False, lambda page: page[1] % 2 > 0)))
        timed.run_until(max(timed.now_ms, last_ms) + 10_000)
        counts = {body: len(times) for body, times in timed.delivered().items()}
        waited = {record.body for record in timed.records(TIMER_TOPIC)}
        assert kept | waited <= counts.keys()
        assert set(counts.values()) <= {1}


def test_entries_of_messages_that_a_power_cut_took_repeat_nothing() -> None:
    """The cut leaves the timer log, and of the commit log the first message alone."""
    with timed_store(forgetful=True) as timed:
        timed.send(b"first", {"TIMER_DELAY_MS": "2000"})
        timed.store.flush()
        timed.send(b"second", {"TIMER_DELAY_MS": "2000"})
        timed.work()
        timed.power_cut(lambda page: page[0].startswith(("timerlog", "timerwheel")))
        timed.send(b"third", {"TIMER_DELAY_MS": "2000"})
        timed.run_until(START_MS + 10_000)
        assert {body: len(times) for body, times in timed.delivered().items()} == {b"first": 1, b"third": 1}


def test_a_message_whose_copy_a_power_cut_took_is_still_in_its_slot() -> None:
    """The clock was set back, so that the slot was closed with the message left out that was delivered."""
    with timed_store(forgetful=True) as timed:
        for delay_ms in (100, 400):
            timed.send(b"%d" % delay_ms, {"TIMER_DELAY_MS": str(delay_ms)})
        timed.store.flush()
        timed.run_until(START_MS + 200)
        timed.now_ms -= 2000
        timed.work()
        timed.power_cut(lambda page: page[0].startswith(("timerlog", "timerwheel")))
        timed.run_until(START_MS + 10_000)
        assert {body: len(times) for body, times in timed.delivered().items()} == {b"100": 1, b"400": 1}
