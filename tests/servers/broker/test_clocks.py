"""A broker whose clock shows a time before 1970, or goes back."""

import time
from pathlib import Path

import pytest

from pyrmq_core.protocol.framing.command import Command
from tests.servers.broker.serving import NOW_MS, serving, until


async def test_a_clock_before_1970_or_that_goes_back_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends, delayed messages, searches by time and a restart, whatever the system calls the time."""
    now = [0]
    monkeypatch.setattr(time, "time_ns", lambda: now[0] * 1_000_000)
    async with serving(tmp_path, messageDelayLevel="1s 2s") as served:
        for milliseconds in (0, -5, -86_400_000 * 365, NOW_MS, NOW_MS - 3_600_000):
            now[0] = milliseconds
            assert (await served.send("T", b"%d" % milliseconds)).code == 0
            assert (await served.send("T", b"late", "DELAY\x011\x02")).code == 0
            fields = {"topic": "T", "queueId": "0", "timestamp": str(milliseconds)}
            assert (await served.ask(Command(29, fields))).code == 0
        now[0] += 10_000
        await until(lambda: served.running.broker.store.reader.bounds(("T", 0)) == (0, 10))
    async with serving(tmp_path) as served:
        assert (await served.pull("T")).max_offset == 10
