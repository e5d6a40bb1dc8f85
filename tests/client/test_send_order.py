"""`SendOrder` and `WindowRoom` alone, compared with plain models: bounds, order in each lane, end by a failure."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import AnyQueue, CallTimeout, KeyedQueue, Message, MessageQueue, Payload, ThisQueue, encode_one
from pyrmq_core.client.producer.bulk.send_order import SendOrder, WindowRoom, is_ordered
from pyrmq_core.client.producer.send.send_options import Target

A0, A1, B0 = (MessageQueue("orders", *place) for place in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0)))
ANY, KEEP, THIS = AnyQueue(), AnyQueue(A0, keep=True), ThisQueue(A1)
KEYED, KEYED_HERE = KeyedQueue("key"), KeyedQueue("key", (A0, A1))
FAILURE = CallTimeout("no answer", address="127.0.0.1:1", request_left=True)


def payload(number: int) -> Payload:
    return encode_one(Message("orders", b"%d" % number), "", compression=None)


def number_of(sent: Payload) -> int:
    return int(bytes(sent.body))


@dataclass(frozen=True, slots=True)
class Add:
    to: Target


@dataclass(frozen=True, slots=True)
class End:
    """The end of one request under way, chosen by the number `which`."""

    which: int
    stored_in: MessageQueue | None


steps = st.one_of(
    st.builds(Add, st.sampled_from([ANY, AnyQueue(A0), KEEP, THIS, KEYED, KEYED_HERE])),
    st.builds(End, st.integers(0, 100), st.sampled_from([A0, A1, None])),
)


class Window:
    """Sends as the window does, and checks each payload that is sent."""

    def __init__(self, max_requests: int) -> None:
        self.order = SendOrder(max_requests)
        self.max_requests = max_requests
        self.added: list[Target] = []
        self.sent: list[int] = []
        self.under_way: list[tuple[int, Target]] = []

    def step(self, step: Add | End) -> None:
        if isinstance(step, Add):
            if self.order.add(payload(len(self.added)), step.to):
                self.added.append(step.to)
                self.send()
                assert self.order.failure is not None or self.sent[-1] == len(self.added) - 1
            else:
                self.added.append(step.to)
                assert self.is_held_up(step.to)
        elif self.under_way:
            _, to = self.under_way.pop(step.which % len(self.under_way))
            self.order.end(to, step.stored_in)
            self.send()

    def send(self) -> None:
        while (following := self.order.next_send()) is not None:
            sent, to = following
            number = number_of(sent)
            assert self.added[number] == to
            if is_ordered(to):
                assert to not in [other for _, other in self.under_way]
                assert not [other for other in self.sent if other > number and self.added[other] == to]
            self.under_way.append((number, to))
            self.sent.append(number)
            assert self.order.requests == len(self.under_way) <= self.max_requests
        waiting = [to for number, to in enumerate(self.added) if number not in self.sent]
        if self.order.failure is None:
            assert all(self.is_held_up(to) for to in waiting)

    def is_held_up(self, to: Target) -> bool:
        """Returns whether a payload for this target cannot be sent now."""
        return len(self.under_way) == self.max_requests or (
            is_ordered(to) and to in [other for _, other in self.under_way]
        )


@given(st.lists(steps, max_size=60), st.integers(1, 5))
def test_all_that_may_be_sent_is_sent_in_its_order(given_steps: list[Add | End], max_requests: int) -> None:
    window = Window(max_requests)
    for step in given_steps:
        window.step(step)
    while window.under_way:
        window.step(End(0, A0))
    assert sorted(window.sent) == list(range(len(window.added)))


@given(st.lists(steps, max_size=60), st.integers(1, 5), st.integers(0, 60))
def test_after_a_failure_nothing_is_sent_and_all_the_rest_is_dropped(
    given_steps: list[Add | End], max_requests: int, fails_at: int
) -> None:
    window = Window(max_requests)
    dropped: list[int] = []
    sent_before = -1
    for at, step in enumerate([*given_steps, *[End(0, None)] * 60]):
        if at == fails_at:
            window.order.fail(FAILURE)
            window.order.fail(CallTimeout("a later one", address="127.0.0.1:1", request_left=True))
            sent_before = len(window.sent)
        window.step(step)
        dropped += map(number_of, window.order.drop())
        assert window.order.failure is None or len(window.sent) == sent_before
    assert window.order.failure is FAILURE
    assert window.order.requests == 0
    assert sorted([*window.sent, *dropped]) == list(range(len(window.added)))


def test_what_waits_behind_a_request_is_dropped_when_that_ends() -> None:
    order = SendOrder(max_requests=5)
    for number in range(3):
        order.add(payload(number), THIS)
    assert order.next_send() == (payload(0), THIS)
    assert order.next_send() is None
    assert order.drop() == []
    order.fail(FAILURE)
    assert order.drop() == []
    order.end(THIS, A1)
    assert [number_of(each) for each in order.drop()] == [1, 2]


@pytest.mark.parametrize(
    ("to", "stored_in", "destination"),
    [
        (ANY, B0, ANY),
        (KEEP, B0, AnyQueue(B0, keep=True)),
        (KEEP, None, KEEP),
        (THIS, A1, THIS),
        (KEYED, B0, KEYED),
        (KEYED_HERE, A1, KEYED_HERE),
        (KEYED_HERE, B0, KeyedQueue("key", (B0,))),
    ],
)
def test_a_lane_goes_where_its_last_payload_is_stored(
    to: Target, stored_in: MessageQueue | None, destination: Target
) -> None:
    order = SendOrder(max_requests=5)
    assert order.destination(to) == to
    order.add(payload(0), to)
    assert order.next_send() == (payload(0), to)
    order.end(to, stored_in)
    assert order.destination(to) == destination


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 120)), max_size=60), st.integers(1, 10), st.integers(1, 200))
def test_room_is_bounded_by_payloads_and_bytes(
    given_steps: list[tuple[bool, int]], max_payloads: int, max_bytes: int
) -> None:
    room = WindowRoom(max_payloads, max_bytes)
    inside: list[int] = []
    for enters, size in given_steps:
        fits = not inside or (len(inside) < max_payloads and sum(inside) + size <= max_bytes)
        half = not inside or (
            len(inside) <= max_payloads // 2 and sum(inside) <= max_bytes // 2 and sum(inside) + size <= max_bytes
        )
        assert room.is_half_empty(size) == half
        if enters:
            assert room.enter(size) == fits
            if fits:
                inside.append(size)
        elif inside:
            room.leave(inside.pop(size % len(inside)))
        assert (room.payloads, room.bytes) == (len(inside), sum(inside))
