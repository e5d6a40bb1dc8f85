"""`HaServer`: the port at which slaves fetch the commit log (`open_ha_port`), and a connection's two tasks.

A slave reports the end of its log, receives the master's bytes from there on, and reports what it has written. Bytes
are read from the log only when the slave can receive them, so nothing is buffered. A slave is refused, with a line in
the log, if its log is longer than the master's, or if it needs a segment that was removed here.

In a power cut this master may lose bytes that a slave has. Later it stores other bytes at the same offsets, and a
comparison of lengths no longer shows the difference. So after a crash a slave is refused if its log is longer than this
master's was at its start, unless slaves have received the log up to that length since. Such a slave stays refused.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

import trio

from pyrmq_core.errors import InvalidArgument, NetworkError, StoreError
from pyrmq_core.network.byte_server import ByteConnection, BytePort, serve_bytes
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.network.server import TlsMode
from pyrmq_core.servers.broker.ha.log_transfer import HaTimes, Reports, first_transfer, in_blocks
from pyrmq_core.servers.broker.ha.replicas import CopyRules, Replica, Replicas
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.message_store import MessageStore

log = line_logger(__name__)

RECEIVED_AT_ONCE: Final = 64 << 10
# The most bytes of one write: several blocks in one write are faster for a slave that lags.
SENT_AT_ONCE: Final = 1 << 20
MOST_OTHERS: Final = 1000

MAX_PORT: Final = 65_535
# The time limit of a slave's first report, in heartbeat intervals. A Java slave checks every second
# if one interval is over.
HEARTBEATS_TO_FIRST_REPORT: Final = 1.5
MILLISECONDS: Final = 1000


class NoSlave(Exception):
    """Raised to end the connection of a slave that cannot be served. The text is the reason."""


class HaServer:
    """A master's replication to slaves. `serve_slave` serves a connection. Each append must call `stored`."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self.replicas = Replicas(CopyRules.of(config))
        self._store = store
        self._times = HaTimes.of(config)
        # After a crash, the largest log end that a slave may report, since this master may have lost later bytes.
        self._known_end: int | None = None
        self._others: set[int] = set()  # log ends above `_known_end` that slaves have reported: they stay refused
        self._grown = trio.Event()
        self._refusals, self._lags = RareLines(), RareLines()

    def open(self, *, clean: bool) -> None:
        """Stores the log's end after a crash (not `clean`), so that slaves with a longer log are refused."""
        self._known_end = None if clean else self._store.end

    def stored(self) -> None:
        if self.replicas.connected:
            self._grown.set()
            self._grown = trio.Event()

    async def serve_slave(self, connection: ByteConnection) -> None:
        reports, reported = Reports(), None
        try:
            reported = await self._next_report(connection, reports)
            if reported is not None:
                await self._serve(connection, reports, reported)
        except NoSlave as error:
            # Names the slave by its host and log end, since each connection has another port.
            line = self._refusals.of((connection.address.rpartition(":")[0], reported))
            if line.is_due():
                log.error("closing the connection with %s: %s%s", connection.address, error, line.left_out())

    async def _serve(self, connection: ByteConnection, reports: Reports, reported: int) -> None:
        start = first_transfer(reported, self._store.end, self._store.settings.segment_bytes)
        self._check(reported, start)
        connection.is_known = True
        replica = self.replicas.join(connection.address)
        replica.first = replica.sent = start
        lag = self._store.end - start
        replica.lags = lag >= self.replicas.rules.most_gap
        log.info("the slave at %s follows from %d on, %d bytes behind", connection.address, start, lag)
        endings: list[Exception] = []
        try:
            self.replicas.acknowledge(replica, reported)
            async with trio.open_nursery() as nursery:
                ends = partial(_ending, nursery.cancel_scope, endings)
                nursery.start_soon(ends, self._send(connection, replica))
                await ends(self._receive(connection, reports, replica))
        finally:
            self.replicas.leave(replica)
            log.info("the slave at %s is gone; it has the log up to %d", connection.address, replica.acknowledged)
        if endings:
            raise endings[0]

    def _check(self, reported: int, start: int) -> None:
        is_other = self._known_end is not None and (reported > self._known_end or reported in self._others)
        if is_other and len(self._others) < MOST_OTHERS:
            self._others.add(reported)
        if not 0 <= reported <= self._store.end:
            raise NoSlave(
                f"it reports a log that ends at {reported}, this master's ends at {self._store.end}: it is no slave, "
                "or has more than its master; remove its store, or make it the master"
            )
        if is_other:
            raise NoSlave(
                f"it reports a log that ends at {reported}, and this master was not stopped in order and sent less "
                "since: its last messages may be others; start it with an empty store, or make it the master"
            )
        if start < self._store.start:
            raise NoSlave(
                f"its log ends at {reported}, and this master's begins at {self._store.start}: what lies between was "
                "removed here; start it with an empty store"
            )

    async def _next_report(self, connection: ByteConnection, reports: Reports) -> int | None:
        """Returns the offset in a slave's next report, or None if it disconnected. Raises `NoSlave` if it is silent."""
        with trio.move_on_after(self._times.housekeeping):
            while data := await connection.stream.receive_some(RECEIVED_AT_ONCE):
                if (offset := reports.feed(data)) is not None:
                    return offset
            if reports.is_half:
                raise NoSlave("it closed within a report")
            return None
        raise NoSlave(f"it was silent for {self._times.housekeeping:g} s (haHousekeepingInterval)")

    async def _receive(self, connection: ByteConnection, reports: Reports, replica: Replica) -> None:
        while (offset := await self._next_report(connection, reports)) is not None:
            if not 0 <= offset <= replica.sent:
                raise NoSlave(f"it acknowledges {offset}, and was sent the log up to {replica.sent}")
            self.replicas.acknowledge(replica, offset)
            if replica.lags:
                self._note_lag(replica)

    async def _send(self, connection: ByteConnection, replica: Replica) -> None:
        while True:
            grown = self._grown
            part = self._part(replica)
            if not part:
                with trio.move_on_after(self._times.heartbeat):
                    await grown.wait()
                    continue
            blocks = in_blocks(replica.sent, part, self._times.block_bytes)
            replica.sent += len(part)  # the slave may acknowledge before the last byte is written here
            if self._known_end is not None:
                self._known_end = max(self._known_end, replica.sent)
            await self._write(connection, memoryview(blocks), replica)
            replica.transferred += len(part)
            self._note_lag(replica)

    async def _write(self, connection: ByteConnection, data: memoryview, replica: Replica) -> None:
        """Sends all the bytes. Raises `NoSlave` if the slave neither reads nor acknowledges in haHousekeepingInterval.

        A slow slave may leave the system's send buffer full for a long time, so an acknowledgement counts, too.
        """
        while data:
            acknowledged = replica.acknowledged
            with trio.move_on_after(self._times.housekeeping):
                data = data[await connection.send_some(data) :]
                continue
            if replica.acknowledged == acknowledged:
                raise NoSlave(f"it took nothing for {self._times.housekeeping:g} s (haHousekeepingInterval)")

    def _note_lag(self, replica: Replica) -> None:
        """Logs when a slave starts to lag by haMaxGapNotInSync bytes, and when it has caught up to half of that."""
        lag, most_gap = self._store.end - max(replica.acknowledged, replica.first), self.replicas.rules.most_gap
        lags = lag >= ((most_gap + 1) // 2 if replica.lags else most_gap)
        if lags is replica.lags:
            return
        replica.lags = lags
        line = self._lags.of((replica.address, lags))
        if line.is_due():
            level, state = (logging.WARNING, "not in sync any more") if lags else (logging.INFO, "in sync again")
            text = "the slave at %s is %s (haMaxGapNotInSync), %d bytes behind%s"
            log.log(level, text, replica.address, state, lag, line.left_out())

    def _part(self, replica: Replica) -> bytes:
        try:
            return self._store.reader.log_part(replica.sent, max(SENT_AT_ONCE, self._times.block_bytes))
        except StoreError as error:
            raise NoSlave(f"the log cannot be read at {replica.sent}: {error}; start it with an empty store") from error


async def _ending(scope: trio.CancelScope, endings: list[Exception], work: Coroutine[Any, Any, None]) -> None:
    """Runs one of the two tasks of a slave's connection, and then cancels the other one by `scope`.

    A connection error is appended to `endings`.
    """
    try:
        await work
    except (NoSlave, trio.BrokenResourceError, trio.ClosedResourceError) as error:
        endings.append(error)
    finally:
        scope.cancel()


async def open_ha_port(config: BrokerConfig, ha: HaServer, services: trio.Nursery, host: str, port: int) -> int:
    """Listens for slaves at haListenPort, or else at `port` + 1, or at a free port if that is in use. Returns the port.

    `host` and `port` are the broker's listening address. Slaves name no user and use no TLS, so a broker with access
    control or enforced TLS serves them only at a port that its settings name.
    """
    if guard := guard_without_ha_port(config):
        log.info("no slave can follow: with %s, set haListenPort, and let only slaves connect to it", guard)
        return min(port + 1, MAX_PORT)
    patience = HEARTBEATS_TO_FIRST_REPORT * config.ha_send_heartbeat_interval / MILLISECONDS
    serve_slaves = partial(serve_bytes, ha.serve_slave, host, patience=patience)
    if config.ha_listen_port >= 0:
        opened: BytePort = await services.start(serve_slaves, config.ha_listen_port)
        return opened.port
    try:
        opened = await services.start(serve_slaves, port + 1 if port < MAX_PORT else 0)
    except NetworkError as error:
        opened = await services.start(serve_slaves, 0)
        level = logging.WARNING if config.listen_port else logging.INFO  # any free port is right for listenPort=0
        text = "the port behind the broker's is taken (%s), so slaves are served at port %d; haListenPort sets one"
        log.log(level, text, error.address, opened.port)
    return opened.port


def guard_without_ha_port(config: BrokerConfig) -> str:
    """Returns "access control" or "enforced TLS" if that forbids slaves because haListenPort is not set, else ""."""
    if config.ha_listen_port >= 0:
        return ""
    if config.access.is_on:
        return "access control"
    return "enforced TLS" if config.tls.mode is TlsMode.ENFORCING else ""


def check_slaves_possible(config: BrokerConfig) -> None:
    """Raises `InvalidArgument` for a master whose sends wait for slaves although no slave can connect."""
    copies = CopyRules.of(config).copies
    if copies > 1 and (guard := guard_without_ha_port(config)):
        raise InvalidArgument(
            f"brokerRole is {config.broker_role}, each send waits for {copies - 1} slaves, and with {guard} none can "
            "follow without haListenPort: set it, and let only slaves connect to it; or set brokerRole=ASYNC_MASTER"
        )
