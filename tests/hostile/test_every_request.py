"""Every request code with every field wrong in every way, to running servers: no other peer notices.

After each: the process lives, another client is answered within 50 ms, no file outside the store changed, memory is
within its bound, and stored messages are there.
"""

from __future__ import annotations

import builtins
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attacks import Attack, all_codes, attacks_of
from tests.hostile.targets import spoiled
from tests.support import golden
from tests.support.stranger import (
    ANSWER_SECONDS,
    Answer,
    ServerProcess,
    Stranger,
    broker_process,
    nameserver_process,
    request,
)

HONEST_SECONDS = 0.05
# In processor time of the server. A pause of its garbage collector is in some: one attack counts as slow when the same
# one is slow so often in a row.
SLOW_IN_A_ROW = 10
# A pull without an answer within this time is held.
UNANSWERED_SECONDS = 1.0
# Half of the spoiled frames are one-way, held or cut short.
SPOILED_SECONDS = 0.02
# Pulls and pops wait; the end of a transaction with an unknown state gets no answer.
HELD = (11, 361, 37, 200050, 200054)
MEMORY_BYTES = 96 << 20
KEPT = [b"kept %d" % number for number in range(20)]
KEPT_QUEUE: dict[str, object] = {"topic": "kept", "queueId": 0}
PARTS = 6
# Values rotate by field: a share has every field of every request, and every value. `make soak` has the other shares.
SHARES = 3
SLAVE_SHARES = 12
LONG = 600
# 318 changes the NameServer's settings, which keeps the file of those before, as RocketMQ does.
OWN = ("errors.log", "kv.json", "server.conf")
# A handler's own failures, by their first word: never an exception of Python's.
BUILTINS = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
UNNAMED = BUILTINS | {"error", "struct.error", "BinAsciiError", "JSONDecodeError"}


class Guarded:
    """A server under attack, an honest client of it, and the files that must not change."""

    def __init__(self, server: ServerProcess, precious: Path, lookup: bytes, check: Callable[[Stranger], None]) -> None:
        self.server = server
        self.precious = precious
        self.lookup = lookup
        self.check = check
        self.honest = server.stranger()
        self.patience = UNANSWERED_SECONDS
        self.attacker = server.stranger()
        self.before = self.outside()
        self.memory_bytes = server.memory_bytes
        self.faults: list[str] = []

    def outside(self) -> dict[str, tuple[int, bytes]]:
        """Returns the files beside the store with inode and content, except the server's own log and settings."""
        root = self.precious.parent
        return {
            str(path.relative_to(root)): (path.stat().st_ino, path.read_bytes() if path.is_file() else b"")
            for path in sorted(root.rglob("*"))
            if not path.is_relative_to(self.server.home / "store") and not path.name.startswith(OWN)
        }

    def suffer(self, attack: Attack) -> None:
        """Sends one attack, and checks all that must hold after it."""
        answer, slow = self._attacked(attack), 0
        while (seconds := self._honest_seconds(attack)) > HONEST_SECONDS:
            slow += 1
            if slow == SLOW_IN_A_ROW:
                self.faults.append(f"{attack}: another client waited for {seconds * 1000:.0f} ms of work")
                break
            answer = self._attacked(attack)
        if answer is not None and answer.code == 1 and _first_word(answer.remark) in UNNAMED:
            self.faults.append(f"{attack}: answered {answer.remark[:120]!r}")
        if not self.server.is_alive:
            raise AssertionError(f"{attack} ended the process: {self.server.output()[-2000:]}")
        if (growth := self.server.memory_bytes - self.memory_bytes) > MEMORY_BYTES:
            self.faults.append(f"{attack}: the process grew by {growth >> 20} MiB")
            self.memory_bytes = self.server.memory_bytes

    def finish(self) -> None:
        """Checks the files and faults after all attacks of a code."""
        self.check(self.honest)
        assert self.outside() == self.before, "files outside the store changed"
        assert not self.faults, "\n".join(self.faults[:20])

    def _attacked(self, attack: Attack) -> Answer | None:
        """Returns the answer; None when there was none, or the connection was closed."""
        try:
            self.attacker.socket.settimeout(self.patience if attack.code in HELD else ANSWER_SECONDS)
            self.attacker.send(attack.data)
            answer = self.attacker.read()
        except TimeoutError:
            if attack.code not in HELD:
                self.faults.append(f"{attack} was neither answered nor refused")
            answer = None
        except OSError:
            answer = None
        if answer is None:
            self.attacker.close()
            self.attacker = self.server.stranger()
        return answer

    def _honest_seconds(self, attack: Attack) -> float:
        began = self.server.processor_seconds
        self.honest.send(self.lookup)
        answer = self.honest.read()
        assert answer is not None, f"{attack} closed another client's connection"
        return self.server.processor_seconds - began


def route_of_kept(honest: Stranger) -> None:
    answer = honest.ask(105, {"topic": "kept"})
    assert answer is not None
    assert answer.code == 0
    assert b"broker-kept" in answer.body


def kept_messages(honest: Stranger) -> None:
    fields = {"consumerGroup": "keeper", "topic": "kept", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
    fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
    answer = honest.ask(11, fields)
    assert answer is not None
    assert answer.code == 0
    assert all(body in answer.body for body in KEPT)


@pytest.fixture(scope="module", params=["NameServer", "broker"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    root = tmp_path_factory.mktemp("hostile")
    for name in ("precious", "home/precious", "home/deep/precious"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("precious")
    if request.param == "NameServer":
        with nameserver_process(root / "home") as server:
            guarded = Guarded(server, root / "precious", _lookup(105, {"topic": "kept"}), route_of_kept)
            _register(guarded.honest)
            yield guarded
    else:
        with broker_process(root / "home", brokerName="broker-x") as server:
            _store(server)
            yield Guarded(server, root / "precious", _lookup(31, KEPT_QUEUE), kept_messages)


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.soak) for share in range(1, SHARES))])
def test_every_request_with_every_field_wrong(guarded: Guarded, share: int, part: int) -> None:
    count = 0
    for at, code in enumerate(all_codes()[part::PARTS]):
        for attack in attacks_of(code, at + share, SHARES):
            guarded.suffer(attack)
            count += 1
        guarded.finish()
    assert count > 1000


@pytest.fixture
def guarded_slave(tmp_path: Path) -> Iterator[Guarded]:
    """A slave under attack, which follows its master before and after."""
    names: dict[str, Any] = {"brokerName": "broker-x", "slaveReadEnable": "true"}
    follows: dict[str, Any] = {**names, "brokerRole": "SLAVE", "brokerId": 1}
    (tmp_path / "root" / "precious").mkdir(parents=True)
    with nameserver_process(tmp_path / "nameserver") as nameserver:
        names["namesrvAddr"] = follows["namesrvAddr"] = nameserver.address
        with (
            broker_process(tmp_path / "master", **names) as master,
            broker_process(tmp_path / "root" / "home", **follows) as slave,
        ):
            _store(master)
            _wait_kept(slave, len(KEPT))
            yield Guarded(slave, tmp_path / "root" / "precious", _lookup(31, KEPT_QUEUE), kept_messages)
            _store(master)
            _wait_kept(slave, 2 * len(KEPT))
            stores = [server.home / "store" / "commitlog" for server in (master, slave)]
            assert next(stores[0].iterdir()).read_bytes() == next(stores[1].iterdir()).read_bytes()


@pytest.mark.timeout(LONG)
def test_every_request_to_a_slave_leaves_it_its_masters_log(guarded_slave: Guarded) -> None:
    """One in twelve of the attacks on each code is made; the others differ in a field's value."""
    count = 0
    for at, code in enumerate(all_codes()):
        for attack in attacks_of(code, at, SLAVE_SHARES):
            guarded_slave.suffer(attack)
            count += 1
    guarded_slave.finish()
    assert count > 1000


def spoil_frames(guarded: Guarded, seed: int, rounds: int) -> None:
    """Sends real frames of clients, brokers and mqadmin, spoiled at random."""
    draw = random.Random(seed)
    frames = [frame for frame in golden.frames() if not frame.is_answer]
    guarded.patience = SPOILED_SECONDS
    for number in range(rounds):
        frame = draw.choice(frames)
        data = spoiled(frame.raw, draw)
        # A correct length lets the rest be read: three of four frames keep theirs.
        if draw.random() < 0.75:
            data = (len(data) - 4).to_bytes(4, "big") + data[4:]
        guarded.suffer(Attack(HELD[0], f"seed {seed}, number {number}, {frame}: {data.hex()[:400]}", data))
    guarded.patience = UNANSWERED_SECONDS
    guarded.finish()


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("seed", [1, 2])
def test_spoiled_frames_of_real_conversations(guarded: Guarded, seed: int) -> None:
    spoil_frames(guarded, seed, 300)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_spoiled_frames_of_real_conversations(guarded: Guarded) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201 - to run it again
    spoil_frames(guarded, seed, 30_000)


def _first_word(remark: str) -> str:
    word = re.match(r"[\w.]+", remark)
    return word[0] if word else ""


def _lookup(code: int, fields: dict[str, object]) -> bytes:
    return request(code, fields)


def _register(stranger: Stranger) -> None:
    """Registers a broker with the topic that must stay, for a day; its connection must not idle for 120 s."""
    topic = b'{"topicName":"kept","readQueueNums":4,"writeQueueNums":4,"perm":6,"topicSysFlag":0,"order":false}'
    body = b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":1},'
    body += b'"topicConfigTable":{"kept":' + topic + b"}}}"
    fields = {"brokerName": "broker-kept", "brokerAddr": "127.0.0.1:10911", "clusterName": "C", "brokerId": 0}
    fields |= {"haServerAddr": "127.0.0.1:10912", "compressed": "false", "heartbeatTimeoutMillis": 86_400_000}
    answer = stranger.ask(103, fields, body)
    assert answer is not None
    assert answer.code == 0, answer.remark


def _store(server: ServerProcess) -> None:
    stranger = server.stranger()
    for body in KEPT:
        fields = {"a": "P", "b": "kept", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0}
        answer = stranger.ask(310, fields, body)
        assert answer is not None
        assert answer.code == 0, answer.remark


def _wait_kept(server: ServerProcess, count: int) -> None:
    stranger, deadline = server.stranger(), time.monotonic() + 60
    while (answer := stranger.ask(30, KEPT_QUEUE)) is None or answer.header.get("extFields") != {"offset": str(count)}:
        assert time.monotonic() < deadline, f"{count} messages are not there within 60 s: {server.output()[-2000:]}"


def test_the_guard_sees_what_it_looks_for(tmp_path: Path) -> None:
    """The suite's own checks fail on a breach of each."""
    (tmp_path / "precious").mkdir()
    with nameserver_process(tmp_path / "home") as server:
        guard = Guarded(server, tmp_path / "precious", _lookup(105, {"topic": "kept"}), route_of_kept)
        _register(guard.honest)
        (tmp_path / "precious" / "new").write_text("x")
        with pytest.raises(AssertionError, match="files outside the store changed"):
            guard.finish()
        (tmp_path / "precious" / "new").unlink()
        guard.memory_bytes = -MEMORY_BYTES
        guard.suffer(Attack(105, "a look-up", request(105, {"topic": "kept"})))
        with pytest.raises(AssertionError, match="the process grew by"):
            guard.finish()
        guard.faults.clear()
        server.process.kill()
        server.process.wait()
        with pytest.raises((AssertionError, ConnectionError, socket.error)):
            guard.suffer(Attack(105, "a look-up", request(105, {"topic": "kept"})))
