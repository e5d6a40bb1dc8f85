"""State that slaves of 5.x fetch: the checkpoint of timers in the bytes of its file, and two empty tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from tests.servers.broker.serving import serving, until

FIELDS_BYTES = 56


async def test_slaves_get_the_checkpoint_that_the_file_has(tmp_path: Path) -> None:
    async with serving(tmp_path, timerFlushIntervalMs="20") as served:
        files = served.running.broker.deliveries.timers.messages.files
        await served.send("T", properties="TIMER_DELAY_SEC\x01100\x02")
        await until(lambda: files.saved.queue_offset == 1)
        body = bytes((await served.ask(Command(RequestCode.GET_TIMER_CHECK_POINT))).body)
        assert len(body) == FIELDS_BYTES
        got = TimerCheckpoint.decode(body)
        assert got is not None
        assert (got.queue_offset, got.log_position) == (1, files.log.end)
        await until(lambda: (tmp_path / "config" / "timercheck").read_bytes()[:FIELDS_BYTES] == body)


async def test_tables_of_parts_that_are_not_built_are_empty(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answer = await served.ask(Command(RequestCode.GET_TIMER_METRICS))
        members = load_object(answer.body, "timers")
        assert members == {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "timingCount": {}}
        answer = await served.ask(Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        assert bytes(answer.body) == b'{"messageRequestModeMap":{}}'


@pytest.mark.parametrize("code", [RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS])
async def test_without_timers_there_is_no_state_of_them(tmp_path: Path, code: RequestCode) -> None:
    async with serving(tmp_path, timerWheelEnable="false") as served:
        answer = await served.ask(Command(code))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").endswith("; timerWheelEnable is false")


@pytest.mark.parametrize(
    ("code", "fields", "table"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, ("topicSeq", "maxTopicNum"), "topicConfigTable"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ("groupSeq", "maxGroupNum"), "subscriptionGroupTable"),
    ],
)
async def test_topics_and_groups_are_served_in_pages(
    tmp_path: Path, code: RequestCode, fields: tuple[str, str], table: str
) -> None:
    async with serving(tmp_path) as served:

        async def page(first: str, most: str, version: str = "") -> list[str]:
            answer = await served.ask(Command(code, {fields[0]: first, fields[1]: most, "dataVersion": version}))
            assert answer.ext == {total: str(len(rows))}
            return list(load_object(answer.body, "page")[table])

        total = "totalTopicNum" if table == "topicConfigTable" else "totalGroupNum"
        members = load_object((await served.ask(Command(code))).body, "all")
        rows, version = list(members[table]), dumps(members["dataVersion"]).decode()
        assert await page("0", "3") == rows[:3]
        assert await page("3", "3", version) == rows[3:6]
        assert await page(str(len(rows) - 1), "3", version) == rows[-1:]
        assert await page("999", "3", version) == []
        assert await page("-5", "0") == rows
        for other in ("", version.replace('"counter":0', '"counter":7')):  # the slave begins again
            assert await page("3", "3", other) == rows[:3]
        refused = await served.ask(Command(code, {fields[1]: "many"}))
        assert refused.code != ResponseCode.SUCCESS
