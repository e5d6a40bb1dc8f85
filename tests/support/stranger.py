"""A stranger with a socket: raw bytes to a server process, its answers, and its use of memory and files.

It uses nothing of the client: the test writes each frame, well formed or not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BOOT_SECONDS = 60.0
ANSWER_SECONDS = 30.0
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Answer:
    """A frame that a server sent: the members of its JSON header, and its body."""

    header: Mapping[str, object]
    body: bytes

    @property
    def code(self) -> object:
        return self.header["code"]

    @property
    def remark(self) -> str:
        return str(self.header.get("remark", ""))


def frame(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    """Returns a frame round any header, well formed or not."""
    return _LENGTH.pack(4 + len(header) + len(body)) + _LENGTH.pack(serialization << 24 | len(header)) + header + body


def request(code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", opaque: int = 1) -> bytes:
    """Returns a frame with a JSON header; half a surrogate in a field travels as `\\ud800`."""
    members = {"code": code, "extFields": dict(fields or {}), "flag": 0, "language": "JAVA", "opaque": opaque}
    return frame(json.dumps({**members, "serializeTypeCurrentRPC": "JSON", "version": 493}).encode(), body)


class Stranger:
    """A blocking connection that sends any bytes."""

    def __init__(self, address: str, *, timeout: float = ANSWER_SECONDS, receive_buffer: int | None = None) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Answer | None:
        """Returns the next frame; None when the server closed the connection."""
        try:
            head = self._exactly(8)
            if head is None:
                return None
            length, header_bytes = _LENGTH.unpack(head[:4])[0], _LENGTH.unpack(head[4:])[0] & 0xFFFFFF
            content = self._exactly(length - 4)
        except ConnectionError:
            return None
        return None if content is None else Answer(json.loads(content[:header_bytes]), content[header_bytes:])

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Answer | None:
        """Returns the answer; skips requests of the server."""
        self.send(request(code, fields, body))
        while (answer := self.read()) is not None and not int(str(answer.header.get("flag", 1))) & 1:
            pass
        return answer

    def _exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)


@dataclass
class ServerProcess:
    """A NameServer or broker of ours in a process of its own, under a home directory of the test's."""

    process: subprocess.Popen[str]
    address: str
    home: Path
    log: Path
    _strangers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def stranger(self, *, timeout: float = ANSWER_SECONDS, receive_buffer: int | None = None) -> Stranger:
        """Opens a connection, which is closed with the process at the latest."""
        stranger = Stranger(self.address, timeout=timeout, receive_buffer=receive_buffer)
        return self._strangers.enter_context(stranger)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def memory_bytes(self) -> int:
        """Resident memory now (Linux)."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def processor_seconds(self) -> float:
        """Processor time of its whole life (Linux): the rest of a wait for it is the machine's."""
        return time.clock_gettime(~self.process.pid << 3 | 2)  # CPUCLOCK_SCHED of linux/posix-timers.h

    @property
    def open_files(self) -> int:
        """Descriptors open now (Linux)."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def output(self) -> str:
        """Returns its standard error so far."""
        return self.log.read_text(errors="replace")

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20.0) -> int:
        """Sends the signal and returns the exit code."""
        self._strangers.close()
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextlib.contextmanager
def nameserver_process(home: Path, *, file_limit: int | None = None, **settings: object) -> Iterator[ServerProcess]:
    """Yields a NameServer on a free port; settings by RocketMQ's names."""
    given = {"listenPort": 0, "kvConfigPath": home / "kv.json", **settings}
    with _server("pyrmq_core.servers.nameserver", home, given, file_limit) as started:
        yield started


@contextlib.contextmanager
def broker_process(home: Path, *, file_limit: int | None = None, **settings: object) -> Iterator[ServerProcess]:
    """Yields a broker on a free port whose store is `home/store`; settings by RocketMQ's names."""
    small = {"mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 6000}
    given = {"listenPort": 0, "storePathRootDir": home / "store", **small, **settings}
    with _server("pyrmq_core.servers.broker", home, given, file_limit) as started:
        yield started


@contextlib.contextmanager
def _server(module: str, home: Path, settings: Mapping[str, object], file_limit: int | None) -> Iterator[ServerProcess]:
    home.mkdir(parents=True, exist_ok=True)
    conf, log = home / "server.conf", home / "errors.log"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", module, "-c", str(conf)]
    if file_limit is not None:
        command = ["sh", "-c", f'ulimit -n {file_limit}; exec "$@"', "sh", *command]
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    with log.open("a") as errors:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    server: ServerProcess | None = None
    try:
        server = ServerProcess(process, _booted_address(process, log), home, log)
        yield server
    finally:
        if server is not None:
            server._strangers.close()
        process.kill()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def _booted_address(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + BOOT_SECONDS
    for line in process.stdout:
        if "boot success" in line:
            # "The broker[NAME, ADDRESS] boot success..." and "... boot success. serializeType=JSON, address ADDRESS"
            return line.partition("]")[0].rpartition(" ")[2].strip()
        if time.monotonic() > deadline:
            break
    raise AssertionError(f"the server did not boot: {log.read_text(errors='replace')[-2000:]}")
