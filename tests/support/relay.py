"""A relay between a job and its cluster that sees every frame: a test acts just before a request, or behind its answer.

    with relayed(nameserver, brokers) as relay:
        relay.nameserver                             # for the job: routes that pass through name the relay's ports
        relay.arm(Point(SENDS, "orders", number=3), act)
        relay.reached.wait(60)                       # `act` was called, and nothing passed meanwhile

It runs in a thread of its own; the action is called there.
"""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder, encode_frame

SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
LOOKS = frozenset({RequestCode.GET_MAX_OFFSET, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 65_536


class Verdict(enum.Enum):
    """The fate of the frame at which a test acted."""

    PASS = "pass"
    LOSE = "lose"  # it is not passed on, and its connection ends
    HOLD = "hold"  # it is passed on at `Relay.release`, however its sender ended


@dataclass(frozen=True)
class Point:
    """The `number`-th request of these codes for a topic, or the answer to it."""

    codes: frozenset[int]
    topic: str
    number: int = 1
    is_answer: bool = False


Action = Callable[[int], Verdict]


@dataclass
class _Connection:
    """One connection of the job; `port` is the job's end, `requests` has topic and code by opaque."""

    port: int
    requests: dict[int, tuple[int, str]] = field(default_factory=dict)


class Relay:
    """The front of a NameServer and its brokers."""

    def __init__(self, nameserver: str, brokers: Sequence[str]) -> None:
        self._targets = [nameserver, *brokers]
        self._fronts: dict[str, str] = {}
        self._armed: tuple[Point, Action] | None = None
        self._left = 0
        self._released = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self.reached = threading.Event()

    @property
    def nameserver(self) -> str:
        """The address that stands for the NameServer."""
        return self._fronts[self._targets[0]]

    def arm(self, point: Point, action: Action) -> None:
        """Calls the action once, with the port of the job's end, when the point is reached."""
        self.reached.clear()
        self._left = point.number
        self._armed = point, action

    def release(self) -> None:
        """Passes on what is held."""
        assert self._token is not None
        trio.from_thread.run_sync(self._release, trio_token=self._token)

    def _release(self) -> None:
        self._released.set()
        self._released = trio.Event()

    async def run(self, ready: threading.Event, ended: trio.Event) -> None:
        """Serves until the event."""
        async with trio.open_nursery() as nursery:
            for target in self._targets:
                [listener] = await trio.open_tcp_listeners(0, host=LOOPBACK)
                self._fronts[target] = f"{LOOPBACK}:{listener.socket.getsockname()[1]}"
                nursery.start_soon(trio.serve_listeners, partial(self._serve, target), [listener])
            self._token = trio.lowlevel.current_trio_token()
            ready.set()
            await ended.wait()
            nursery.cancel_scope.cancel()

    async def _serve(self, target: str, near: trio.SocketStream) -> None:
        host, _, port = target.rpartition(":")
        async with near:
            try:
                far = await trio.open_tcp_stream(host, int(port))
            except OSError:
                return
            connection = _Connection(near.socket.getpeername()[1])
            async with far, trio.open_nursery() as nursery:
                nursery.start_soon(self._carry, near, far, connection, nursery.cancel_scope)
                await self._carry(far, near, connection, nursery.cancel_scope)

    async def _carry(
        self, source: trio.SocketStream, to: trio.SocketStream, connection: _Connection, pair: trio.CancelScope
    ) -> None:
        """Carries one direction to its end; a frame that was held still goes when its sender has ended."""
        received = bytearray()
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                received += data
                while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4])):
                    frame = bytes(received[:size])
                    del received[:size]
                    verdict, passed = self._seen(frame, connection)
                    if verdict is Verdict.HOLD:
                        await self._released.wait()
                    elif verdict is Verdict.LOSE:
                        pair.cancel()
                        return
                    await to.send_all(passed)
            await to.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pair.cancel()

    def _seen(self, frame: bytes, connection: _Connection) -> tuple[Verdict, bytes]:
        command = _decoded(frame)
        if command.is_response:
            code, topic = connection.requests.pop(command.opaque, (0, ""))
            if code in {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO} and command.body:
                frame = self._with_fronts(command)
        else:
            code, topic = command.code, command.ext.get("topic") or command.ext.get("b") or ""
            connection.requests[command.opaque] = code, topic
        armed = self._armed
        if armed is None or code not in armed[0].codes or topic != armed[0].topic:
            return Verdict.PASS, frame
        point, action = armed
        if command.is_response is not point.is_answer:
            return Verdict.PASS, frame
        self._left -= 1
        if self._left:
            return Verdict.PASS, frame
        self._armed = None
        verdict = action(connection.port)
        self.reached.set()
        return verdict, frame

    def _with_fronts(self, answer: Command) -> bytes:
        body = bytes(answer.body)
        for target, front in self._fronts.items():
            body = body.replace(f'"{target}"'.encode(), f'"{front}"'.encode())
        return encode_frame(replace(answer, body=body))


def _decoded(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    command = decoder.next_command()
    assert isinstance(command, Command)
    return command


@contextmanager
def relayed(nameserver: str, brokers: Sequence[str]) -> Iterator[Relay]:
    """Yields a running relay; ends it on leaving."""
    relay, ready, ended = Relay(nameserver, brokers), threading.Event(), trio.Event()
    thread = threading.Thread(target=trio.run, args=(relay.run, ready, ended), name="relay")
    thread.start()
    assert ready.wait(30), "the relay did not start"
    try:
        yield relay
    finally:
        trio.from_thread.run_sync(ended.set, trio_token=relay._token)
        thread.join(30)


def owner_of(port: int, pids: Sequence[int]) -> int | None:
    """Returns which of these processes has the connection whose local port this is; None when it has ended."""
    inode = _inodes().get(port)
    for pid in pids:
        try:
            if inode and any(os.readlink(file) == f"socket:[{inode}]" for file in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
        except OSError:
            continue
    return None


def _inodes() -> Mapping[int, str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return {int(row[1].rpartition(":")[2], 16): row[9] for row in rows if row[9] != "0"}
