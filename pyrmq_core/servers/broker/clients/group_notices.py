"""Notices to the clients of a consumer group whose members or subscriptions changed, so that they rebalance.

One heartbeat may change thousands of groups with many members, so notices are sent a few at a time. A group that
changes again while it waits gets one notice. A client that misses its notice rebalances by itself every 20 s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker.clients.client_table import ClientTable

NOTIFY_SECONDS: Final = 3.0
# How many notices are sent before other tasks run. They take one or two milliseconds.
NOTICES_AT_ONCE: Final = 64


class GroupNotices:
    """The groups whose clients need a notice, in the order of changes. `run` sends the notices until cancelled."""

    def __init__(self) -> None:
        self._groups: dict[str, None] = {}
        self._has_work = trio.Event()

    def changed(self, groups: Iterable[str]) -> None:
        self._groups.update(dict.fromkeys(groups))
        if self._groups:
            self._has_work.set()

    async def run(self, clients: ClientTable) -> None:
        sent = 0
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            while self._groups:
                group = next(iter(self._groups))
                del self._groups[group]
                request = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}).oneway()
                for peer in list(clients.members(group)):
                    post_notice(peer, request)
                    sent += 1
                    if sent % NOTICES_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()


def post_notice(peer: Peer, request: Command, seconds: float = NOTIFY_SECONDS) -> None:
    """Posts a one-way request to a client, unless its connection is closed or has too much to send already."""
    if not peer.connection.is_full:
        with contextlib.suppress(NetworkError):
            peer.connection.post(request, timeout=seconds, done=_sent)


def _sent(_: object) -> None: ...
