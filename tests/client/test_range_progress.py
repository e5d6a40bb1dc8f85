"""`RangeProgress` and `PullSizer` alone: any answers, in any order, are delivered in order and without a gap."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import CallTimeout, PullStatus, RawPull, ReadWindow
from pyrmq_core.client.consumer.pull.pull_sizes import MAX_UNDER_WAY, PullSizer
from pyrmq_core.client.consumer.pull.range_progress import PullSlice, RangeProgress, SliceState
from tests.client.reading import A0
from tests.client.test_ranges_of_batches import stored

# Many draws: on a busy machine they take more than a minute.
ASKED, COVERED, BROKEN = SliceState.ASKED, SliceState.COVERED, SliceState.BROKEN
FAILURE = CallTimeout("no answer", address="127.0.0.1:1", request_left=True)
EVERYTHING = 10**9

Answer = Callable[[PullSlice], RawPull]


def pull(start: int, next_offset: int, records: bytes = b"") -> RawPull:
    return RawPull(A0, start, next_offset, 0, EVERYTHING, PullStatus.FOUND, records)


class Read:
    """A whole read over `RangeProgress`: `answer` is the broker, `draw` the order of its answers."""

    def __init__(self, start: int, end: int, window: ReadWindow, answer: Answer, draw: st.DataObject) -> None:
        self.progress = RangeProgress(start, end, window)
        self.answer = answer
        self.draw = draw
        self.under_way: list[PullSlice] = []
        self.requested: list[tuple[int, int]] = []
        self.pulls: list[RawPull] = []
        if start < end:
            self.progress.begin(answer(PullSlice(start, end)))

    def run(self) -> list[RawPull]:
        """Takes until the range's end; leaves in `pulls` what came before an error."""
        while True:
            self.progress.want(self.pick(1, 3000), self.pick(1, 300))
            self.post(self.progress.deliver_in_order())
            for _ in range(self.pick(0, len(self.under_way))):
                self.answer_one()  # while no one waits
            self.post(self.progress.deliver_in_order())
            while not self.progress.is_enough():
                answered = self.answer_one()
                if answered.state is not ASKED and answered is self.progress.slices[0]:
                    self.post(self.progress.deliver_in_order())
            pulls = self.progress.take()
            if not pulls:
                return self.pulls
            self.pulls += pulls

    def post(self, slices: list[PullSlice]) -> None:
        for each in slices:
            assert each.state is ASKED
            assert each.position < each.end_offset <= self.progress.end
            self.requested.append((each.position, each.end_offset))
        self.under_way += slices

    def answer_one(self) -> PullSlice:
        """Answers one slice: at once, by retries, or with an error for good."""
        assert self.under_way, "nothing is under way, and it is not enough to take"
        pull_slice = self.under_way.pop(self.pick(0, len(self.under_way) - 1))
        try:
            if self.pick(0, 9):
                state = self.progress.add_answer(pull_slice, self.answer(pull_slice))
                assert state is pull_slice.state
            else:
                while pull_slice.state is ASKED:
                    pull_slice.add(self.answer(pull_slice))
        except CallTimeout as error:
            pull_slice.fail(error)
        if pull_slice.state is ASKED:
            self.under_way.append(pull_slice)
        return pull_slice

    def pick(self, least: int, most: int) -> int:
        return self.draw.draw(st.integers(least, most))


def check_in_order(pulls: list[RawPull], start: int, end: int) -> None:
    for each in pulls:
        assert each.start == start < each.next_offset
        start = each.next_offset
    assert start == end


windows = st.builds(ReadWindow, messages=st.integers(1, 500), bytes=st.integers(1, 5000))
ranges = st.tuples(st.integers(0, 50), st.integers(0, 600)).map(lambda both: (both[0], both[0] + both[1]))


@given(st.data(), ranges, windows, st.integers(1, 40))
def test_any_answers_come_whole_and_nothing_is_asked_twice(
    data: st.DataObject, bounds: tuple[int, int], window: ReadWindow, most: int
) -> None:
    start, end = bounds

    def answer(requested: PullSlice) -> RawPull:
        count = data.draw(st.integers(1, min(most, requested.end_offset - requested.position)))
        return pull(requested.position, requested.position + count, b"x" * count)

    read = Read(start, end, window, answer, data)
    first = read.progress.next_start
    check_in_order(read.run(), start, end)
    assert sum(to - position for position, to in read.requested) == end - first
    assert sorted(read.requested) == read.requested


@given(st.data(), st.lists(st.integers(1, 12), min_size=1, max_size=40), windows)
def test_any_batches_come_whole(data: st.DataObject, sizes: list[int], window: ReadWindow) -> None:
    bases = [0, *accumulate(sizes)]
    start, end = sorted(data.draw(st.tuples(st.integers(0, bases[-1]), st.integers(0, bases[-1]))))

    def answer(requested: PullSlice) -> RawPull:
        number = bisect_right(bases, requested.position) - 1
        base, following = bases[number : number + 2]
        return pull(requested.position, min(following, end), stored(base, following))

    check_in_order(Read(start, end, window, answer, data).run(), start, end)


@given(st.data(), ranges, windows)
def test_what_a_filter_passes_over_is_delivered_once(
    data: st.DataObject, bounds: tuple[int, int], window: ReadWindow
) -> None:
    start, end = bounds

    def answer(requested: PullSlice) -> RawPull:
        return pull(
            requested.position, data.draw(st.integers(requested.position + 1, min(requested.position + 100, end)))
        )

    check_in_order(Read(start, end, window, answer, data).run(), start, end)


@given(st.data(), ranges, windows, st.integers(0, 700))
def test_an_error_is_raised_after_all_that_lies_before_it(
    data: st.DataObject, bounds: tuple[int, int], window: ReadWindow, broken: int
) -> None:
    start, end = bounds

    def answer(requested: PullSlice) -> RawPull:
        if requested.position == broken and broken != start:
            raise FAILURE
        # The first answer is larger: slices of its size take several answers, so some break behind their first pulls.
        following = min(requested.position + (20 if requested.position == start else 7), requested.end_offset)
        return pull(requested.position, broken if requested.position < broken < following else following)

    read = Read(start, end, window, answer, data)
    if not start < broken < end:
        check_in_order(read.run(), start, end)
        return
    for _ in range(2):  # each time it is taken
        with pytest.raises(CallTimeout) as caught:
            read.run()
        assert caught.value is FAILURE
    check_in_order(read.pulls, start, broken)


@given(st.data(), windows, st.integers(1, 40))
def test_slices_under_way_stay_within_the_window(data: st.DataObject, window: ReadWindow, size: int) -> None:
    def answer(requested: PullSlice) -> RawPull:
        return pull(requested.position, min(requested.position + size, requested.end_offset), b"x" * size)

    read = Read(0, 1000, window, answer, data)
    read.progress.want(EVERYTHING, EVERYTHING)
    read.post(read.progress.deliver_in_order())
    expected = max(1, min(window.messages // size, window.bytes // size, MAX_UNDER_WAY))
    assert len(read.under_way) == min(expected, -(-(1000 - size) // size))


def test_a_slice_is_covered_when_its_pulls_reach_its_end() -> None:
    progress = RangeProgress(0, 100, ReadWindow(messages=1))
    progress.begin(pull(0, 40))
    progress.want(EVERYTHING, EVERYTHING)
    (requested,) = progress.deliver_in_order()
    assert (requested.position, requested.end_offset, requested.state) == (40, 80, ASKED)
    assert progress.add_answer(requested, pull(40, 60)) is ASKED
    assert requested.position == 60
    assert not progress.deliver_in_order()
    assert progress.add_answer(requested, pull(60, 80)) is COVERED
    (last,) = progress.deliver_in_order()
    assert (last.position, last.end_offset, progress.is_enough()) == (80, 100, False)
    last.fail(FAILURE)
    assert (last.state, progress.is_enough()) == (BROKEN, True)
    check_in_order(progress.take(), 0, 80)
    with pytest.raises(CallTimeout):
        progress.take()


def test_a_batch_that_begins_late_leaves_a_gap_that_is_pulled_first() -> None:
    progress = RangeProgress(0, 30, ReadWindow())
    progress.begin(pull(0, 10, stored(0, 10)))
    progress.want(EVERYTHING, EVERYTHING)
    second, third = progress.deliver_in_order()
    assert progress.add_answer(third, pull(20, 30, stored(17, 30))) is COVERED
    assert progress.add_answer(second, pull(10, 12, stored(10, 12))) is COVERED
    (gap,) = progress.deliver_in_order()
    assert (gap.position, gap.end_offset, progress.slices[0]) == (12, 17, gap)
    assert progress.add_answer(gap, pull(12, 17, stored(12, 17))) is COVERED
    assert not progress.deliver_in_order()
    assert [(each.start, each.next_offset) for each in progress.take()] == [(0, 10), (10, 12), (12, 17), (17, 30)]


# Of the mean and of its quotient.
ROUNDING = 1e-9


@given(
    st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 1 << 20)), min_size=1, max_size=20),
    st.builds(ReadWindow, messages=st.integers(0, 10_000), bytes=st.integers(0, 1 << 24)),
    st.booleans(),
)
def test_the_room_of_a_window(answers: list[tuple[int, int]], window: ReadWindow, batched: bool) -> None:
    """By messages, by the mean of bytes, and at most so many; of batches two, where bytes allow."""
    sizer, mean = PullSizer(), 0.0
    for number, (count, size) in enumerate(answers):
        records = stored(0, 2) if batched else b"x" * size
        answer = pull(0, count, records)
        if number:
            sizer.learn(answer, count, larger=False)
            sizer.learn_bytes(len(records), 1)
            mean += (len(records) - mean) / 16
        else:
            sizer.begin(answer)
            mean = float(len(records))
    most = min(max(2 if batched else 1, window.messages // sizer.size), MAX_UNDER_WAY)
    room = sizer.slices_at_once(window)
    assert 1 <= room <= most
    if room > 1:
        assert room * mean <= window.bytes * (1 + ROUNDING)
    if room < most:
        assert (room + 1) * max(1.0, mean) > window.bytes * (1 - ROUNDING)
