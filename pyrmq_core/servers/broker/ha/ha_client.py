"""`HaClient`: a slave's connection to its master, through which it copies the master's log.

The slave reports the end of its log, receives blocks of bytes that begin there, and reports again when it has stored
them. Between blocks it replays the copied records to fill its own consume queues and index. After a failure, which is
logged, it connects again. Source: store/ha/DefaultHAClient.java (5.4.0).
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from pyrmq_core.errors import NetworkError, RocketMQError, StoreError
from pyrmq_core.network import format_address
from pyrmq_core.network.connect import open_stream
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.broker.ha.log_transfer import BLOCK_HEAD, REPORT, HaTimes
from pyrmq_core.servers.broker.ha.master_checks import CannotFollow
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store_services.flush import Flusher

log = line_logger(__name__)

RECEIVED_AT_ONCE: Final = 1 << 20
# The longest block that a slave accepts. Java's masters send 32 KiB by default.
MOST_BLOCK_BYTES: Final = 16 << 20
# How many times other tasks run after each step of the replay, so that received bytes are stored first.
TAKES_BETWEEN: Final = 4
CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0

# The same failure is logged at most once in this time.
REPEAT_SECONDS: Final = 60.0
NUMBERS: Final = re.compile(r"\d+")


class FollowLines:
    """The log lines that say whether a slave follows its master, without repetitions.

    Failures that differ only in numbers, such as offsets, are taken for the same.
    """

    def __init__(self) -> None:
        self._is_followed = False
        self._is_failure_logged = True  # set so that the first success is logged
        self._last = ""
        self._logged_at: dict[str, float] = {}

    def follows(self, address: str) -> None:
        if self._is_followed:
            return
        self._is_followed = True
        if self._is_failure_logged:
            self._is_failure_logged = False
            log.info("this slave follows the master at %s", address)

    def fails(self, line: str) -> None:
        """Logs a failure, unless it is the same as the last one or was logged less than `REPEAT_SECONDS` ago."""
        now, kind = trio.current_time(), NUMBERS.sub("", line)
        goes_on = kind == self._last and not self._is_followed
        self._is_followed, self._last = False, kind
        self._logged_at = {text: at for text, at in self._logged_at.items() if now < at + REPEAT_SECONDS}
        if not goes_on and kind not in self._logged_at:
            self._logged_at[kind] = now
            self._is_failure_logged = True
            log.warning("%s", line)


class HaClient:
    """A slave's end of the connection with its master. `run` follows the master until cancelled.

    `address` returns the address of the master's port for slaves, or None while that is unknown. `look_for_master`
    starts a new look-up of it. `check` raises `CannotFollow` if this store's log is not the beginning of the master's.
    `learn_topic` fetches the settings of a copied record's topic.
    """

    def __init__(
        self,
        store: MessageStore,
        config: BrokerConfig,
        flusher: Flusher,
        address: Callable[[], str | None],
        look_for_master: Callable[[], None],
        check: Callable[[], Awaitable[None]],
        learn_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._times = HaTimes.of(config)
        self._flusher = flusher
        self._address = address
        self._look_for_master = look_for_master
        self._check = check
        self._learn_topic = learn_topic
        self._grown = trio.Event()
        self._wanted = trio.Event()
        self._lines = FollowLines()
        self._asked_at = -math.inf
        self._began_at = 0.0
        self.master: str | None = None  # the followed master's address; None without a master
        self.own_address = ""  # this end's address of the connection, as the master sees it
        self.taken = 0  # bytes received since the connection began
        # The number of attempts to follow, the last attempt that failed for another reason than the network, and the
        # last failure.
        self.attempts = self.refused_attempt = 0
        self.failure = ""
        self.read_at = self.reported_at = self.began = 0.0

    async def run(self) -> None:
        self._began_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._replay)
            while True:
                try:
                    await self._follow()
                except (CannotFollow, RocketMQError) as error:
                    if not isinstance(error, NetworkError):
                        self.refused_attempt = self.attempts
                    self._fails(f"this slave does not follow its master: {error}")
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    self._fails(f"this slave lost the connection with its master: {error.__cause__ or error}")
                finally:
                    self.master = None
                if trio.current_time() >= self._asked_at + LOOK_SECONDS:
                    self._asked_at = trio.current_time()
                    self._look_for_master()
                with trio.move_on_after(RETRY_SECONDS):
                    await self._wanted.wait()
                self._wanted = trio.Event()

    def try_now(self) -> None:
        self._wanted.set()

    def _fails(self, line: str) -> None:
        self.failure = line
        self._lines.fails(line)

    async def _follow(self) -> None:
        self.attempts += 1
        address = self._address()
        if address is None:
            if trio.current_time() < self._began_at + LOOK_SECONDS:
                return  # the registration, which learns the address, has not ended yet
            raise CannotFollow("no NameServer names one yet, and haMasterAddress is not set")
        self._store.check_copying()
        await self._drop_incomplete()
        await self._check()
        async with await open_stream(address, timeout=CONNECT_SECONDS) as stream:
            self.master, self.taken = address, 0
            self.own_address = format_address(*stream.socket.getsockname()[:2])
            self.began = self.read_at = trio.current_time()
            await self._report(stream)
            await self._take(stream, address)

    async def _drop_incomplete(self) -> None:
        # The log's last record may be incomplete, and the master may have another one there. So it is fetched again.
        with suppress(StoreError):  # `_replay` tries again and logs it
            while self._store.replay():
                await trio.lowlevel.checkpoint()
        self._store.drop_incomplete()

    async def _take(self, stream: trio.abc.Stream, address: str) -> None:
        unstored = b""
        while self._address() in (None, address):
            data = None
            with trio.move_on_after(self._times.heartbeat):
                data = await stream.receive_some(RECEIVED_AT_ONCE)
            if data is None:
                if trio.current_time() - self.read_at >= self._times.housekeeping:
                    raise CannotFollow(
                        f"{address} was silent for {self._times.housekeeping:g} s (haHousekeepingInterval)"
                    )
                await self._report(stream)
                continue
            if not data:
                raise CannotFollow(f"{address} closed the connection; if it goes on, its log says why")
            self.read_at = trio.current_time()
            end, received = self._store.end, unstored + bytes(data)
            unstored = received[self._store_blocks(memoryview(received), address) :]
            if self._store.end != end:
                self._grown.set()
                await self._report(stream)

    def _store_blocks(self, received: memoryview, address: str) -> int:
        """Appends the complete blocks among the received bytes to the log, with one write for each segment.

        Returns the number of bytes of these blocks. Raises `CannotFollow` for a block that does not continue the log.
        """
        at, expected, bodies = 0, self._store.end, list[memoryview]()
        while len(received) - at >= BLOCK_HEAD.size:
            offset, size = BLOCK_HEAD.unpack_from(received, at)
            is_first = not expected
            if not 0 <= size <= MOST_BLOCK_BYTES or offset < 0 or not (is_first or offset == expected):
                self._store_bodies(expected, bodies)
                raise CannotFollow(
                    f"{address} sends {size} bytes at {offset} of its log, and this one ends at {expected}; is it a "
                    f"master's port for slaves, and of {self._store.settings.segment_bytes} bytes a segment?"
                )
            following = at + BLOCK_HEAD.size + size
            if following > len(received):
                break
            if size:
                if bodies and not offset % self._store.settings.segment_bytes:
                    self._store_bodies(expected, bodies)
                bodies.append(received[at + BLOCK_HEAD.size : following])
                expected = offset + size
            at = following
        self._store_bodies(expected, bodies)
        if at:
            self._lines.follows(address)
        return at

    def _store_bodies(self, end: int, bodies: list[memoryview]) -> None:
        if bodies:
            data = b"".join(bodies)
            bodies.clear()
            self._store.copy(end - len(data), data)
            self.taken += len(data)

    async def _report(self, stream: trio.abc.Stream) -> None:
        end = self._store.end
        if self._flusher.is_sync and not await self._flusher.wait_flushed(end):
            end = self._store.flushed
        with trio.move_on_after(self._times.housekeeping) as waited:
            await stream.send_all(REPORT.pack(end))
        if waited.cancelled_caught:
            raise CannotFollow(f"{self.master} took no report for {self._times.housekeeping:g} s")
        self.reported_at = trio.current_time()

    async def _replay(self) -> None:
        last_failure = ""
        while True:
            self._grown = trio.Event()
            try:
                while self._store.replay():
                    for _ in range(TAKES_BETWEEN):
                        await trio.lowlevel.checkpoint()
            except StoreError as error:
                if str(error) != last_failure:
                    last_failure = str(error)
                    log.error("this slave's queues are behind, and it tries again: %s", last_failure)
                await trio.sleep(RETRY_SECONDS)
                continue
            last_failure = ""
            for start, end in self._store.take_damage():
                log.error("no record can be read between %d and %d of the copied log: it is passed over", start, end)
            if (topic := self._store.unknown_topic) is not None:
                await self._learn_topic(topic)
                continue
            await self._grown.wait()
