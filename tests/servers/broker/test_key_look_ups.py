"""QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33) on a broker: what is found, in which bytes, and after which ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import InvalidArgument, StoreError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.query_message import QueryMessage, ViewMessage
from pyrmq_core.servers.broker import RunningBroker
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store_services import key_indexing
from pyrmq_core.servers.embedded.forgetful_files import cut_power
from tests.servers.broker.serving import Served, serving
from tests.support.waiting import until

EVER = (0, (1 << 63) - 1)
# Small files, so that some are full.
SMALL = {"maxHashSlotNum": "7", "maxIndexNum": "20"}


async def query(
    served: Served,
    key: str,
    *,
    most: int = 64,
    times: tuple[int, int] = EVER,
    unique: bool = False,
    index_type: str | None = None,
) -> Command:
    return await served.ask(QueryMessage("T", key, most, *times, unique, index_type).to_command())


def bodies(answer: Command) -> list[bytes]:
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND), answer.remark
    return [record.body for record in iterate_records(bytes(answer.body), check_crc=True)]


async def fill(served: Served, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        properties = f"KEYS\x01k n{number}\x02UNIQ_KEY\x01ID{number}\x02TAGS\x01red\x02"
        answer = await served.send("T", b"%d" % number, properties)
        assert answer.code == ResponseCode.SUCCESS


async def test_messages_are_found_by_key_id_and_tags(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await fill(served, 70)
        assert bodies(await query(served, "k")) == [b"%d" % number for number in range(6, 70)]
        assert bodies(await query(served, "k", most=2)) == [b"68", b"69"]
        assert bodies(await query(served, "k", most=1 << 20)) == bodies(await query(served, "k"))
        assert bodies(await query(served, "n3")) == [b"3"]
        assert bodies(await query(served, "ID3")) == bodies(await query(served, "ID3", unique=True)) == [b"3"]
        assert len(bodies(await query(served, "k", unique=True))) == 32
        assert bodies(await query(served, "red")) == []
        assert len(bodies(await query(served, "red", index_type="T"))) == 64
        for most in (0, -1):
            assert bodies(await query(served, "k", most=most)) == []


async def test_a_record_of_another_topic_is_no_answer(tmp_path: Path) -> None:
    """The index has a hash of topic and key, and another topic's key with the same hash is soon found."""
    async with serving(tmp_path) as served:
        await served.send("secret", b"card number", "KEYS\x01order-17\x02")
        other = await served.ask(QueryMessage("mine", "oIbOWYHG", 64, *EVER, False, None).to_command())
        assert bodies(other) == []
        own = await served.ask(QueryMessage("secret", "order-17", 64, *EVER, False, None).to_command())
        assert bodies(own) == [b"card number"]


async def test_the_bytes_of_an_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await fill(served, 3)
        store = served.running.broker.store
        places = [store.reader.entry(("T", 0), offset).physical_offset for offset in range(3)]
        last_ms = store.reader.store_time(("T", 0), 2)
        answer = await query(served, "k", most=2)
        assert bytes(answer.body) == b"".join([store.reader.record(place) or b"" for place in places[1:]])
        assert dict(answer.ext) == {
            "indexLastUpdateTimestamp": str(last_ms),
            "indexLastUpdatePhyoffset": str(places[-1]),
        }
        nothing = await query(served, "other")
        assert nothing.code == ResponseCode.QUERY_NOT_FOUND
        assert nothing.remark == "can not find message, maybe time range not correct"
        assert dict(nothing.ext) == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        assert last_ms is not None
        assert bodies(await query(served, "k", times=(0, last_ms + 999))) == [b"0", b"1", b"2"]
        assert bodies(await query(served, "k", times=(last_ms + 1000, EVER[1]))) == []
        assert bodies(await query(served, "k", times=(0, last_ms - 60_000))) == []


@pytest.mark.parametrize("end", ["stop", "kill", "power cut"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_messages_are_found_after_an_end(tmp_path: Path, end: str, flush: str) -> None:
    async with serving(tmp_path, flushDiskType=flush, **SMALL) as served:
        await fill(served, 20)
        assert bodies(await query(served, "n19")) == [b"19"]
        await until(lambda: served.running.broker.store.indexed.store_ms > 0)
        if flush == "ASYNC_FLUSH":
            served.running.broker.store.flush()
        {"stop": RunningBroker.stop, "kill": RunningBroker.kill, "power cut": cut_power}[end](served.running)
        await served.ended.wait()
    async with serving(tmp_path, flushDiskType=flush, **SMALL) as served:
        assert bodies(await query(served, "k")) == [b"%d" % number for number in range(20)]
        await fill(served, 5, 20)
        assert bodies(await query(served, "k")) == [b"%d" % number for number in range(25)]


async def test_an_index_that_is_gone_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path) as served:
        await fill(served, 10)
    shutil.rmtree(tmp_path / "index")
    async with serving(tmp_path, messageIndexSafe="true", **SMALL) as served:
        assert bodies(await query(served, "n3")) == [b"3"]
        await fill(served, 1, 10)
    async with serving(tmp_path) as served:
        assert "of other settings: it is made anew" in caplog.text
        assert bodies(await query(served, "n10")) == [b"10"]


async def test_without_an_index_messages_are_stored_all_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, messageIndexEnable="false") as served:
        await fill(served, 3)
        assert bodies(await query(served, "k")) == []
        assert not (tmp_path / "index").exists()
    async with serving(tmp_path) as served:
        assert bodies(await query(served, "k")) == [b"0", b"1", b"2"]
    async with serving(tmp_path, indexFileReadEnable="false") as served:
        assert bodies(await query(served, "k")) == []
    async with serving(tmp_path, indexFileWriteEnable="false") as served:
        await fill(served, 1, 3)
        assert bodies(await query(served, "k")) == [b"0", b"1", b"2"]


async def test_a_failing_index_keeps_no_message_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_indexing, "RETRY_SECONDS", 0.01)
    async with serving(tmp_path) as served:
        await fill(served, 2)
        assert len(bodies(await query(served, "k"))) == 2
        monkeypatch.setattr(key_indexing, "WAIT_SECONDS", 0.01)
        file = served.running.broker.services.index._index._files[0]

        def fail(*_: object) -> None:
            raise StoreError("No space left on device")

        monkeypatch.setattr(file, "append", fail)
        await fill(served, 3, 2)
        assert len(bodies(await query(served, "k"))) == 2
        await fill(served, 3, 5)
        assert len((await served.pull("T")).records) > 0
        assert caplog.text.count("the index of keys is behind, and tries again: No space left") == 1
        monkeypatch.undo()
        await until(lambda: served.running.broker.services.index._index.is_live)
        assert len(bodies(await query(served, "k"))) == 8


async def test_files_of_removed_messages_go(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": "4096", "maxStoreBytes": "16384", "cleanResourceInterval": "10", **SMALL}
    async with serving(tmp_path, **settings) as served:
        await fill(served, 100)
        await until(lambda: served.running.broker.store.start > 0)
        await until(lambda: len(list((tmp_path / "index").iterdir())) < 16)
        store, index = served.running.broker.store, served.running.broker.services.index
        assert index.stored_bytes > 0
        await until(lambda: store.log_bytes + index.stored_bytes <= 16384)
        messages = bodies(await query(served, "k"))
        assert messages[-1] == b"99"
        assert len(messages) < 64


async def test_look_ups_wait_for_their_turn_in_bounded_number(tmp_path: Path) -> None:
    answers: list[list[bytes]] = []

    async def ask() -> None:
        answers.append(bodies(await query(served, "k")))

    async with serving(tmp_path) as served:
        await fill(served, 1)
        look_ups = served.running.broker.services.index._look_ups
        look_ups.most = 2
        others = [object() for _ in range(key_indexing.READING_AT_ONCE)]
        for other in others:
            await look_ups.limiter.acquire_on_behalf_of(other)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await until(lambda: look_ups.tasks == 2)
            assert_busy(await query(served, "k"))
            assert answers == []
            look_ups.limiter.release_on_behalf_of(others.pop())
        assert answers == [[b"0"], [b"0"]]
        assert bodies(await query(served, "k")) == [b"0"]
        last = object()
        await look_ups.limiter.acquire_on_behalf_of(last)
        look_ups.turn_seconds = 0.01
        assert_busy(await query(served, "k"))
        look_ups.limiter.release_on_behalf_of(last)
        assert bodies(await query(served, "k")) == [b"0"]


def assert_busy(answer: Command) -> None:
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark == "too many look-ups by key wait for their turn; try again later"


async def test_views(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await fill(served, 2)
        store = served.running.broker.store
        second = store.reader.entry(("T", 0), 1).physical_offset
        assert bytes((await served.ask(ViewMessage(second).to_command())).body) == store.reader.record(second)
        for place in (second + 1, second - 1, store.end, store.end + 1, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)):
            answer = await served.ask(ViewMessage(place, "T").to_command())
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {place}",
            )


@pytest.mark.parametrize(
    "settings", [{"maxHashSlotNum": "0"}, {"maxIndexNum": "1"}, {"maxHashSlotNum": "1000000000"}], ids=str
)
def test_impossible_files_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"maxHashSlotNum is 1 or more.* at most 2 GiB"):
        BrokerConfig().with_settings(settings)
