"""Sends to topics and queues that are new: what the broker makes for them holds up no other sender."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.abc import Instrument

from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.servers.broker.store.message_store import MessageStore
from tests.servers.broker.serving import Served, serving


@pytest.fixture
def synced_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced in this thread."""
    here, paths = threading.get_ident(), []

    def recording(sync: Callable[[int], None]) -> Callable[[int], None]:
        def record(number: int) -> None:
            if threading.get_ident() == here:
                paths.append(os.readlink(f"/proc/self/fd/{number}"))
            sync(number)

        return record

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, recording(getattr(os, name)))
    return paths


async def test_the_loop_waits_for_no_sync_of_new_queues(tmp_path: Path, synced_here: list[str]) -> None:
    async with serving(tmp_path) as served:
        await served.send("First")  # makes the first file of the log
        assert (await served.ask(UpdateTopic("Wide", 50, 50, 6).to_command())).code == 0
        synced_here.clear()
        for number in range(20):
            assert (await served.send(f"T{number}")).code == 0
        for queue_id in range(50):
            assert (await served.send("Wide", queue_id=queue_id)).code == 0
        await served.running.broker.services.flusher.flush_queues()
        assert synced_here == []
    assert count_queue_files(tmp_path) == 71


def count_queue_files(directory: Path) -> int:
    return len(list(directory.glob("consumequeue/*/*/*")))


class NewQueues(Instrument):
    """The most queues that were made in one turn of the loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._before = 0
        self.most = 0

    def after_io_wait(self, _timeout: float) -> None:
        self._before = len(self._store.queues.by_key)

    def before_io_wait(self, _timeout: float) -> None:
        self.most = max(self.most, len(self._store.queues.by_key) - self._before)


async def test_senders_to_many_new_topics_go_on_one_by_one(tmp_path: Path) -> None:
    """All wait for one file of topics, and their own files are made when it is written."""
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        new_queues = NewQueues(served.running.broker.store)
        trio.lowlevel.add_instrument(new_queues)
        for number in range(100):
            nursery.start_soon(send, served, f"T{number}")
    assert new_queues.most == 1


async def send(served: Served, topic: str) -> None:
    assert (await served.send(topic)).code == 0
