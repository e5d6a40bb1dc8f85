"""Push consumers of other languages, which join and leave groups on order.

Those in Java run in one Java machine (interop/java/GroupMembers.java), those in Go in one process (interop/go).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from pyrmq_core import MessageQueue
from tests.support.go_programs import run_go
from tests.support.groups.records import Record, record_of
from tests.support.java_programs import run_java
from tests.support.waiting import until

PROGRAM = Path(__file__).parent.parent.parent / "interop" / "java" / "GroupMembers.java"
BOOT_SECONDS = 120.0
LEAVING_SECONDS = 60.0


@dataclass(eq=False)
class JavaMember:
    """One consumer, as far as its program has reported it."""

    name: str
    topic: str
    take: Callable[[Record], None]
    client_id: str = ""
    owned: frozenset[MessageQueue] = frozenset()
    has_left: bool = False
    java: JavaMembers | None = None

    async def stop(self) -> None:
        """Shuts the consumer down, and returns when that is done."""
        assert self.java is not None
        await self.java.order(f"leave {self.name}")
        await until(lambda: self.has_left, LEAVING_SECONDS)


@dataclass(eq=False)
class JavaMembers:
    """The program and its connection."""

    stream: trio.SocketStream
    members: dict[str, JavaMember] = field(default_factory=dict)
    _sending: trio.Lock = field(default_factory=trio.Lock)
    _ended: trio.Event = field(default_factory=trio.Event)

    async def join(self, name: str, group: str, topic: str, take: Callable[[Record], None], *, kind: str) -> JavaMember:
        """Starts a consumer, "concurrent", "orderly" or "circle"; each message that it consumes is passed to `take`."""
        member = self.members[name] = JavaMember(name, topic, take, java=self)
        await self.order(f"join {name} {group} {topic} {kind}")
        return member

    async def die(self) -> None:
        """Has a program in Go kill itself, with its members."""
        await self.order("die")
        await self._ended.wait()

    async def order(self, line: str) -> None:
        async with self._sending:
            await self.stream.send_all(f"{line}\n".encode())

    async def read(self) -> None:
        """Takes note of the program's lines until the connection ends."""
        rest = b""
        while data := await self._receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._note(*line.decode().split(" "))
        self._ended.set()

    async def _receive(self) -> bytes:
        try:
            return await self.stream.receive_some()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    def _note(self, kind: str, name: str, *words: str) -> None:
        member = self.members.get(name)
        assert member is not None, f"the other program: {kind} {name} {words}"
        match kind:
            case "record":
                member.take(record_of(member.topic, (name, *words)))
            case "owns":
                places = [place.split(":") for place in words[1].split(",") if place]
                member.client_id = words[0]
                member.owned = frozenset(MessageQueue(member.topic, broker, int(number)) for broker, number in places)
            case "left":
                member.has_left = True
            case _:
                raise AssertionError(f"the other program: {kind} {name} {' '.join(words)}")


@asynccontextmanager
async def open_java_members(version: str, nameserver: str, *, seconds: float = 300.0) -> AsyncIterator[JavaMembers]:
    """Yields the program of a release, which has no members yet; it ends with the block, after `seconds` at most."""
    async with _opened(partial(run_java, version, PROGRAM, nameserver, timeout=seconds)) as members:
        yield members


@asynccontextmanager
async def open_go_members(nameserver: str, *, seconds: float = 300.0) -> AsyncIterator[JavaMembers]:
    """Yields the Go program without members, under the same conditions."""
    async with _opened(partial(run_go, "members", nameserver, timeout=seconds, may_die=True)) as members:
        yield members


@asynccontextmanager
async def _opened(run: Callable[[str], object]) -> AsyncIterator[JavaMembers]:
    """Yields the program that `run` starts with a port of this process."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = str(listener.socket.getsockname()[1])
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, run, port)
        with trio.fail_after(BOOT_SECONDS):
            stream = await listener.accept()
        java = JavaMembers(stream)
        nursery.start_soon(java.read)
        try:
            yield java
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()
