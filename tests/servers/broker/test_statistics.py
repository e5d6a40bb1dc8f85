"""The broker's figures: tallies with their minute, hour and day, the store's rates, and the task that samples them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker.statistics import figures as figures_module
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.store_rates import StoreRates
from pyrmq_core.servers.broker.statistics.tallies import DAY, HOUR, MINUTE, PERIODS, Figure, Tally
from pyrmq_core.servers.broker.upkeep import sample_figures
from tests.servers.broker.serving import NOW_MS, serving


def new_figures() -> BrokerFigures:
    return BrokerFigures("DefaultCluster", lambda topic: topic.startswith("SYS"))


def figure(figures: BrokerFigures, name: str, key: str, period: object = MINUTE) -> Figure:
    pair = figures.find(name, key)
    assert pair is not None, (name, key)
    tally, counter = pair
    return tally.figure(period, counter)  # type: ignore[arg-type]


def test_a_figure_is_what_the_samples_gained_a_second_and_a_request() -> None:
    tally = Tally()
    assert tally.figure(MINUTE, "messages") == Figure(0, 0.0, 0.0)
    tally.messages, tally.requests, tally.size_bytes = 300, 3, 30_000
    assert tally.figure(MINUTE, "messages") == Figure(0, 0.0, 0.0), "nothing is known before the first sample"
    tally.take_sample(MINUTE, 1_000_000)
    assert tally.figure(MINUTE, "messages") == Figure(300, 30.0, 100.0)
    assert tally.figure(MINUTE, "size_bytes") == Figure(30_000, 3000.0, 10_000.0)
    assert tally.figure(HOUR, "messages") == Figure(0, 0.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), min_size=1, max_size=60))
def test_a_period_forgets_what_is_older(gains: list[tuple[int, int]]) -> None:
    """Against a plain list: the sum and the rate are those of the last samples that the period keeps."""
    for period in PERIODS:
        tally, totals = Tally(), [(0, 0, 0)]
        for number, (messages, requests) in enumerate(gains, 1):
            tally.messages += messages
            tally.requests += requests
            tally.take_sample(period, number * period.every_ms)
            totals.append((number * period.every_ms, tally.messages, tally.requests))
        first, last = totals[-period.kept :][0], totals[-1]
        gained, requests = last[1] - first[1], last[2] - first[2]
        tps = gained * 1000 / (last[0] - first[0])
        assert tally.figure(period, "messages") == Figure(gained, tps, gained / requests if requests else 0.0)


def test_rates_are_empty_until_so_many_seconds_passed() -> None:
    rates = StoreRates()
    shown = []
    for second in range(601):
        rates.take_sample(second * 1000)
        rates.note_put(5, 500, 0)
        rates.note_get(2, 0)
        rates.note_get(0, 0)
        if second in (0, 9, 10, 60, 600):
            values = rates.figures()
            shown.append([values["putTps"], values["getTotalTps"], values["getTransferredTps"]])
    assert shown == [
        ["  ", "  ", "  "],
        ["  ", "  ", "  "],
        ["5.0  ", "2.0  ", "2.0  "],
        ["5.0 5.0 ", "2.0 2.0 ", "2.0 2.0 "],
        ["5.0 5.0 5.0", "2.0 2.0 2.0", "2.0 2.0 2.0"],
    ]


def test_a_recent_rate_is_0_before_two_samples() -> None:
    rates = StoreRates()
    assert rates.lately(lambda totals: totals.timers_in) == 0.0
    rates.timers_in = 7
    rates.take_sample(1000)
    assert rates.lately(lambda totals: totals.timers_in) == 0.0


async def test_request_28_has_the_rates_of_timers_in_the_last_ten_seconds(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """The loop's clock stands still, so that the broker takes no sample and delivers nothing by itself."""
    messages, due_ms, beat = 20, time.time_ns() // 1_000_000 + 3_600_000, 0
    async with serving(tmp_path) as served:
        broker = served.running.broker
        broker.counts.figures.store = StoreRates()

        async def shown_after(seconds: int) -> tuple[str, str]:
            nonlocal beat
            for _ in range(seconds):
                broker.counts.figures.store.take_sample(NOW_MS + beat * 1000)
                beat += 1
            answer = await served.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
            table = json.loads(bytes(answer.body))["table"]
            return table["timerEnqueueTps"], table["timerDequeueTps"]

        assert await shown_after(0) == ("0.0", "0.0")
        assert await shown_after(1) == ("0.0", "0.0")
        for number in range(messages):
            await served.send("T", b"%d" % number, f"TIMER_DELIVER_MS\x01{due_ms}\x02")
        while broker.deliveries.timers.messages.work(due_ms - 60_000) == 0:
            await trio.lowlevel.checkpoint()
        assert await shown_after(1) == ("20.0", "0.0"), "one second passed since the start"
        assert await shown_after(4) == ("4.0", "0.0")
        while broker.deliveries.timers.messages.work(due_ms) == 0:
            await trio.lowlevel.checkpoint()
        assert await shown_after(5) == ("2.0", "2.0")
        assert await shown_after(1) == ("0.0", "2.0"), "they were taken in 11 seconds ago"
        assert await shown_after(5) == ("0.0", "0.0")
        mock_clock.rate = 1.0


# What rocketmq-exporter parses of the answer to 28, without a check: one that is missing or no number ends all figures.
WHOLE_NUMBERS = """msgPutTotalTodayNow sendThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills
msgGetTotalTodayNow queryThreadPoolQueueSize bootTimestamp msgPutTotalYesterdayMorning msgGetTotalYesterdayMorning
pullThreadPoolQueueSize commitLogMinOffset pullThreadPoolQueueHeadWaitTimeMills dispatchMaxBuffer brokerVersion
pageCacheLockTimeMills commitLogMaxOffset getMessageEntireTimeMax msgPutTotalTodayMorning putMessageTimesTotal
msgGetTotalTodayMorning sendThreadPoolQueueSize startAcceptSendRequestTimeStamp putMessageEntireTimeMax
earliestMessageTimeStamp remainTransientStoreBufferNumbs queryThreadPoolQueueCapacity dispatchBehindBytes
putMessageSizeTotal sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity"""
NUMBERS = """consumeQueueDiskRatio commitLogDiskRatio putMessageAverageSize putTps getMissTps getTransferedTps
getTotalTps getFoundTps"""
# The others that 4.9.7 and 5.4.0 answer with their default settings.
OTHERS = """putMessageDistributeTime commitLogDirCapacity remainHowManyDataToFlush runtime brokerVersionDesc
brokerActive EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
ackThreadPoolQueueSize ackThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueCapacity litePullThreadPoolQueueSize
litePullThreadPoolQueueHeadWaitTimeMills putMessageFailedTimes getTransferredTps putLatency99 putLatency999
timerCongestNum timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind"""


async def test_the_broker_has_every_figure_that_rocketmqs_has(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answer = await served.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = json.loads(bytes(answer.body))["table"]
        assert all(int(table[name]) >= -1 for name in WHOLE_NUMBERS.split())
        assert all(float(number) >= 0 for name in NUMBERS.split() for number in table[name].split())
        assert table.keys() >= set(OTHERS.split())
        assert (table["sendThreadPoolQueueCapacity"], table["queryThreadPoolQueueCapacity"]) == ("10000", "20000")
        await served.send("T", b"1")
        latency = await served.ask(
            Command(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_LATENCY", "statsKey": "0@T"})
        )
        assert latency.code == 0


def test_the_times_of_puts_are_counted_by_length_and_shown_for_the_minute_before() -> None:
    rates = StoreRates()
    for took_ms in (0, 0, 0, 5, 9, 10, 99, 100, 12_000):
        rates.note_put(1, 100, took_ms)
    before = rates.figures()
    assert (before["putMessageEntireTimeMax"], before["putMessageTimesTotal"]) == (12_000, 9)
    assert (before["putMessageSizeTotal"], before["putMessageAverageSize"]) == (900, 100.0)
    assert str(before["putMessageDistributeTime"]).startswith("[<=0ms]:0 [0~10ms]:0 ")
    rates.turn_minute()
    shown = rates.figures()
    assert shown["putMessageDistributeTime"] == (
        "[<=0ms]:3 [0~10ms]:2 [10~50ms]:1 [50~100ms]:1 [100~200ms]:1 [200~500ms]:0 [500ms~1s]:0 "
        "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert shown["putLatency99"] == "100.00", "of nine puts eight ended within 100 ms"


def test_every_statistic_is_found_by_its_name_and_key() -> None:
    figures = new_figures()
    figures.note_put("T", 10, 1000, 1)
    figures.note_put("SYS_T", 7, 70, 1)
    figures.note_put_latency("T", 3, 8)
    figures.note_get("T", "g", 3, 4, 400, 6)
    figures.note_send_back("T", "g")
    list(figures.take_samples(MINUTE, 10_000))
    cluster = "DefaultCluster"
    assert figure(figures, "TOPIC_PUT_NUMS", "T") == Figure(10, 1.0, 10.0)
    assert figure(figures, "TOPIC_PUT_SIZE", "T") == Figure(1000, 100.0, 1000.0)
    assert figure(figures, "TOPIC_PUT_LATENCY", "3@T") == Figure(8, 0.8, 8.0)
    assert figure(figures, "GROUP_GET_NUMS", "T@g") == Figure(4, 0.4, 4.0)
    assert figure(figures, "GROUP_GET_SIZE", "T@g") == Figure(400, 40.0, 400.0)
    assert figure(figures, "GROUP_GET_LATENCY", "3@T@g") == Figure(6, 0.6, 6.0)
    assert figure(figures, "SNDBCK_PUT_NUMS", "T@g") == Figure(1, 0.1, 1.0)
    assert figure(figures, "BROKER_PUT_NUMS", cluster) == Figure(17, 1.7, 0.0)
    assert figure(figures, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", cluster).sum == 10
    assert figure(figures, "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", cluster).sum == 4
    assert (figures.put_tps("T"), figures.get_tps("T", "g"), figures.put_tps("none")) == (1.0, 0.4, 0.0)
    for name, key in (("TOPIC_PUT_NUMS", "none"), ("NONE", "T"), ("BROKER_PUT_NUMS", "T"), ("GROUP_GET_NUMS", "T")):
        assert figures.find(name, key) is None


def test_what_is_deleted_is_forgotten() -> None:
    figures = new_figures()
    for topic in ("T", "U"):
        figures.note_put(topic, 1, 1, 0)
        figures.note_put_latency(topic, 0, 0)
        for group in ("T", "g"):  # a group may have a topic's name
            figures.note_get(topic, group, 0, 1, 1, 0)
    figures.forget_topic("T")
    list(figures.forget_deleted())
    kept = [key for key in ("T@T", "T@g", "U@T", "U@g") if figures.find("GROUP_GET_NUMS", key)]
    assert (kept, figures.find("TOPIC_PUT_NUMS", "T")) == (["U@T", "U@g"], None)
    assert figures.find("GROUP_GET_LATENCY", "0@T@g") is None
    assert [key for key in ("0@T", "0@U") if figures.find("TOPIC_PUT_LATENCY", key)] == ["0@U"]
    figures.forget_group("g")
    list(figures.forget_deleted())
    assert [key for key in ("U@T", "U@g") if figures.find("GROUP_GET_NUMS", key)] == ["U@T"]
    assert figures.find("TOPIC_PUT_LATENCY", "0@U") is not None


def test_topics_beyond_the_bound_are_counted_for_the_broker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_module, "MAX_TALLIES", 2)
    figures = new_figures()
    for number in range(5):
        figures.note_put(f"T{number}", 1, 1, 0)
    assert [bool(figures.find("TOPIC_PUT_NUMS", f"T{number}")) for number in range(5)] == [True, True] + [False] * 3
    assert figures.totals()["msgPutTotalTodayNow"] == 5


async def test_the_sampler_keeps_every_interval(autojump_clock: trio.testing.MockClock) -> None:
    """An hour with a message a minute, of which half is after midnight; `autojump_clock` takes no real time for it."""
    figures, began = new_figures(), trio.current_time()
    first_ms = datetime(2021, 5, 6, 23, 30).timestamp() * 1000

    def now_ms() -> int:
        return int(first_ms + (trio.current_time() - began) * 1000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(sample_figures, figures, now_ms))
        await trio.sleep(5)  # so that no message is counted at the moment of a sample
        for _ in range(61):
            await trio.sleep(60)
            figures.note_put("T", 1, 100, 0)
        await trio.sleep(10)
        assert figure(figures, "TOPIC_PUT_NUMS", "T", MINUTE).sum == 1
        assert figure(figures, "TOPIC_PUT_NUMS", "T", HOUR).sum == 59
        assert figure(figures, "TOPIC_PUT_NUMS", "T", DAY).sum == 59
        assert str(figures.store.figures()["putTps"]).count(".") == 3
        assert str(figures.store.figures()["putMessageDistributeTime"]).startswith("[<=0ms]:1 ")
        assert (figures.totals()["msgPutTotalTodayMorning"], figures.totals()["msgPutTotalTodayNow"]) == (29, 61)
        figures.forget_topic("T")
        await trio.sleep(2)
        assert figures.find("TOPIC_PUT_NUMS", "T") is None
        nursery.cancel_scope.cancel()


def test_idle_is_a_whole_day_without_a_count() -> None:
    tally = Tally()
    tally.messages = 1
    for hour in range(DAY.kept - 1):
        assert not tally.is_idle()
        tally.take_sample(DAY, hour * DAY.every_ms)
    tally.take_sample(DAY, DAY.kept * DAY.every_ms)
    assert tally.is_idle()
    tally.messages += 1
    tally.take_sample(DAY, (DAY.kept + 1) * DAY.every_ms)
    assert not tally.is_idle()


def test_idle_tallies_go() -> None:
    figures = new_figures()
    figures.note_put("T", 1, 1, 0)
    for hour in range(DAY.kept + 1):
        figures.note_put("U", 1, 1, 0)
        list(figures.take_samples(DAY, hour * DAY.every_ms))
    list(figures.forget_idle())
    assert figures.find("TOPIC_PUT_NUMS", "T") is None
    assert figures.find("TOPIC_PUT_NUMS", "U") is not None


def test_counting_takes_a_few_calls_whatever_the_number_of_messages() -> None:
    """Python's calls stand for processor time, which depends on the machine: a request takes hundreds of them."""
    figures = new_figures()
    figures.note_put("T", 1, 100, 0)
    figures.note_get("T", "g", 0, 1, 100, 0)

    def calls(counted: Callable[[], None]) -> int:
        seen: list[str] = []
        sys.setprofile(lambda frame, event, argument: seen.append(event))
        try:
            counted()
        finally:
            sys.setprofile(None)
        return sum(event in ("call", "c_call") for event in seen)

    assert calls(lambda: figures.note_put("T", 1000, 100_000, 0)) <= 6
    assert calls(lambda: figures.note_get("T", "g", 0, 1000, 100_000, 0)) <= 6
