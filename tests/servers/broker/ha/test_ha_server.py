"""A master's HA port: slaves get the log's bytes, and whatever else connects is refused and named."""

from __future__ import annotations

import json
import logging
import socket
import struct
from pathlib import Path

import pytest
import trio

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.servers.broker import RunningBroker
from pyrmq_core.servers.embedded.forgetful_files import cut_power
from tests.servers.broker.ha.following import Follower, follower
from tests.servers.broker.serving import Served, serving, until
from tests.support.apache import free_port
from tests.support.certificates import Certificates

SEGMENT_BYTES = 4096


def log_of(served: Served, start: int) -> bytes:
    """Returns the bytes of the log from an offset on, as its files have them."""
    store = served.running.broker.store
    parts, at = [], start
    while part := store.reader.log_part(at, 1 << 20):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


@pytest.mark.parametrize("before", [0, 3, 100])
async def test_a_slave_gets_the_log_as_it_is_and_as_it_grows(tmp_path: Path, before: int) -> None:
    async with serving(tmp_path, mappedFileSizeCommitLog=str(SEGMENT_BYTES), haTransferBatchSize="1000") as served:
        for number in range(before):
            await served.send("T", b"%d" % number)
        start = served.running.broker.store.end
        start -= start % SEGMENT_BYTES
        async with follower(served.running) as slave:
            await slave.report(0)
            for number in range(50):
                await served.send("T", b"more %d" % number)
            await slave.follow(served.running.broker.store.end)
            assert slave.start == start
            assert slave.log == log_of(served, start)
            assert slave.log.count(b"more ") == 50


async def test_a_slave_that_comes_back_gets_what_it_lacks(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"first")
        async with follower(served.running) as slave:
            await slave.report(0)
            await slave.follow(served.running.broker.store.end)
            had = slave.log
        await served.send("T", b"second")
        async with follower(served.running) as again:
            await again.report(len(had))
            await again.follow(served.running.broker.store.end)
        assert again.start == len(had)
        assert had + again.log == log_of(served, 0)


async def test_heartbeats_name_the_next_byte(tmp_path: Path) -> None:
    async with serving(tmp_path, haSendHeartbeatInterval="20") as served:
        await served.send("T")
        end = served.running.broker.store.end
        async with follower(served.running) as slave:
            await slave.report(end)
            assert [await slave.block() for _ in range(3)] == [(end, b"")] * 3


@pytest.mark.parametrize("is_given_back", [False, True])
async def test_a_synchronous_master_answers_when_its_slave_has_the_message(tmp_path: Path, is_given_back: bool) -> None:
    async with (
        serving(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="20000") as served,
        trio.open_nursery() as nursery,
        follower(served.running) as slave,
    ):
        answers: list[Command] = []
        if is_given_back:
            await served.send("T", properties="WAIT\x01false\x02")
        first = served.running.broker.store.end

        async def send() -> None:
            back = ConsumerSendMsgBack(0, "G", 1).to_command()
            answers.append(await (served.ask(back) if is_given_back else served.send("T")))

        await slave.report(0)
        await until(lambda: bool(served.running.broker.cluster.ha.replicas.connected))
        nursery.start_soon(send)
        body = b""
        while len(body) < served.running.broker.store.end or served.running.broker.store.end == first:
            body += (await slave.block())[1]
        for _ in range(2):  # an answer before that of the first pull is in `answers` when the second returns
            await served.pull("T")
        assert answers == []
        await slave.report(len(body))
        await until(lambda: bool(answers))
        assert answers[0].code == ResponseCode.SUCCESS


async def test_a_message_that_was_given_back_is_stored_once_without_a_slave(tmp_path: Path) -> None:
    """A consumer that heard of a failure would send a copy."""
    async with serving(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="50") as served:
        await served.send("T")
        assert (await served.ask(ConsumerSendMsgBack(0, "G", -1).to_command())).code == ResponseCode.SUCCESS
        assert len(list(iterate_records((await served.pull("%DLQ%G")).records))) == 1


@pytest.mark.parametrize("properties", ["", "WAIT\x01false\x02"])
async def test_without_a_slave_a_synchronous_master_says_so(tmp_path: Path, properties: str) -> None:
    async with serving(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="50") as served:
        answer = await served.send("T", properties=properties)
        waited = ResponseCode.SUCCESS if properties else ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (answer.code, answer.ext["queueOffset"]) == (waited, "0")
        assert len((await served.pull("T")).records) > 0


async def test_with_the_setting_of_4_9_too_few_slaves_are_an_answer_at_once(tmp_path: Path) -> None:
    """No slave, a slave too far behind: 11. A slave near enough that does not acknowledge: 12."""
    settings = {"brokerRole": "SYNC_MASTER", "haSlaveFallbehindMax": "1000"}
    codes = []
    async with serving(tmp_path, **settings, slaveTimeout="600000") as served:
        codes.append((await served.send("T")).code)
        async with follower(served.running) as slave:
            await slave.report(served.running.broker.store.end)
            await until(lambda: bool(served.running.broker.cluster.ha.replicas.connected))
            codes.append((await served.send("T", bytes(1000))).code)
            change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"haSlaveFallbehindMax=1000000\nslaveTimeout=50\n")
            assert (await served.ask(change)).code == ResponseCode.SUCCESS
            codes.append((await served.send("T")).code)
        assert len((await served.pull("T")).records) > 0
    assert codes == [
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ]


async def test_the_number_of_copies_changes_while_it_runs(tmp_path: Path) -> None:
    async with serving(tmp_path, brokerRole="SYNC_MASTER", slaveTimeout="50") as served:
        assert (await served.send("T")).code == ResponseCode.SUCCESS
        for copies, code in (("2", ResponseCode.FLUSH_SLAVE_TIMEOUT), ("1", ResponseCode.SUCCESS)):
            change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"inSyncReplicas={copies}\n".encode())
            assert (await served.ask(change)).code == ResponseCode.SUCCESS
            assert (await served.send("T")).code == code


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_slave_with_messages_that_a_power_cut_took_is_refused_for_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_power_cut: bool
) -> None:
    """The master has grown beyond the slave when it comes back, with other messages in these places."""
    async with serving(tmp_path, flushIntervalCommitLog="600000") as served:
        await served.send("T", b"synced")
        served.running.broker.store.flush()
        for number in range(9):
            await served.send("T", b"unsynced %d" % number)
        async with follower(served.running) as slave:
            await slave.report(0)
            await slave.follow(served.running.broker.store.end)
            had = slave.log
        (cut_power if is_power_cut else RunningBroker.kill)(served.running)
        await served.ended.wait()
    async with serving(tmp_path) as served:
        for number in range(20):
            await served.send("T", b"later %d" % number)
        async with follower(served.running) as again:
            await again.report(len(had))
            if is_power_cut:
                assert await again.is_closed()
                assert "its last messages may be others" in caplog.text
            else:
                await again.follow(served.running.broker.store.end)
                assert had + again.log == log_of(served, 0)
        async with follower(served.running) as empty:
            await empty.report(0)
            await empty.follow(served.running.broker.store.end)
        async with follower(served.running) as back:
            await back.report(empty.end)
            await served.send("T")
            await back.follow(served.running.broker.store.end)
        assert empty.log + back.log == log_of(served, 0)
        if is_power_cut:  # another slave has gone beyond it by now
            async with follower(served.running) as once_more:
                await once_more.report(len(had))
                assert await once_more.is_closed()


async def no_slave(slave: Follower, bytes_sent: bytes) -> None:
    await slave.stream.send_all(bytes_sent)
    assert await slave.is_closed()


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it is no slave, or has more than its master"),
        ((10**9).to_bytes(8), "it is no slave, or has more than its master"),
        ((-5).to_bytes(8, signed=True), "it is no slave"),
        (b"\x00\x00\x00", "it was silent for 0.3 s"),
    ],
)
async def test_a_peer_that_is_no_slave_is_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes, named: str
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path, haHousekeepingInterval="300") as served:
        await served.send("T")
        async with follower(served.running) as peer:
            await no_slave(peer, sent)
            assert f"closing the connection with {peer.address}: " in caplog.text
        assert named in caplog.text
        assert (await served.send("T")).code == ResponseCode.SUCCESS


async def test_a_slave_may_not_acknowledge_more_than_it_was_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="50") as served:
        await served.send("T")
        async with follower(served.running) as peer:
            await peer.report(0)
            await peer.follow(served.running.broker.store.end)
            await peer.report(10**6)
            assert await peer.is_closed()
        assert "it acknowledges 1000000, and was sent the log up to" in caplog.text
        assert (await served.send("T")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_a_slave_behind_the_first_segment_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, mappedFileSizeCommitLog=str(SEGMENT_BYTES), maxStoreBytes="9000") as served:
        for number in range(60):
            await served.send("T", b"%d" % number)
        await until(lambda: served.running.broker.store.start > 0)
        async with follower(served.running) as slave:
            await slave.report(1)
            assert await slave.is_closed()
        assert "what lies between was removed here; start it with an empty store" in caplog.text


async def test_a_slave_that_takes_nothing_holds_up_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, haHousekeepingInterval="500") as served:
        for _ in range(6):
            await served.send("T", bytes(1 << 20))
        async with follower(served.running) as slave:
            await slave.report(0)
            await until(lambda: bool(served.running.broker.cluster.ha.replicas.connected))
            assert (await served.send("T")).code == ResponseCode.SUCCESS
            await until(lambda: not served.running.broker.cluster.ha.replicas.connected)
        assert "haHousekeepingInterval" in caplog.text


@pytest.mark.parametrize("behind", [0, 4 << 20])
async def test_a_slave_that_is_reset_ends_with_a_line_and_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, behind: int
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path, haListenPort="0") as served:
        for _ in range(behind >> 20):
            await served.send("T", bytes(1 << 20))
        replicas = served.running.broker.cluster.ha.replicas
        async with follower(served.running) as slave:
            await slave.report(0 if behind else served.running.broker.store.end)
            await until(lambda: bool(replicas.connected))
            slave.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await until(lambda: f"the connection with {slave.address} " in caplog.text)
        assert not replicas.connected
    assert [line.message for line in caplog.records if line.levelno > logging.INFO or line.exc_info] == []
    assert f"the connection with {slave.address} ended: " in caplog.text


async def test_tools_see_the_state_of_replication(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, follower(served.running) as slave:
        await served.send("T")
        await slave.report(0)
        end = served.running.broker.store.end
        await slave.follow(end)
        replica = next(iter(served.running.broker.cluster.ha.replicas.connected))
        await until(lambda: replica.acknowledged == end)
        state = json.loads(bytes((await served.ask(Command(RequestCode.GET_BROKER_HA_STATUS))).body))
        assert (state["master"], state["inSyncSlaveNums"], state["masterCommitLogMaxOffset"]) == (True, 1, end)
        (row,) = state["haConnectionInfo"]
        assert (row["slaveAckOffset"], row["diff"], row["inSync"], row["transferFromWhere"]) == (end, 0, True, end)


@pytest.mark.parametrize("guard", ["access control", "enforced TLS"])
@pytest.mark.parametrize(("port", "is_open"), [("-1", False), ("0", True)])
async def test_a_guarded_broker_serves_slaves_at_a_port_that_is_set(
    tmp_path: Path, port: str, is_open: bool, guard: str
) -> None:
    """A slave names no user, speaks plain, and may read everything."""
    settings = {"authenticationEnabled": "true", "initAuthenticationUser": '{"username":"u","password":"p"}'}
    if guard == "enforced TLS":
        settings = Certificates(tmp_path).server()
    async with serving(tmp_path, haListenPort=port, **settings) as served:
        try:
            async with follower(served.running) as slave:
                await slave.report(0)
                await until(lambda: bool(served.running.broker.cluster.ha.replicas.connected))
            is_served = True
        except OSError:
            is_served = False
        assert is_served is is_open


async def test_a_taken_port_is_replaced_by_a_free_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", free_port((-3, -1, 0)))) as listener:
        port = listener.getsockname()[1] - 1
        async with serving(tmp_path, listenPort=str(port)) as served:
            assert served.running.ha_address != f"127.0.0.1:{port + 1}"
            (line,) = [line for line in caplog.records if line.name.endswith("ha_server")]
            assert line.levelno == logging.WARNING
            assert f"taken (127.0.0.1:{port + 1}), so slaves are served at port" in line.message
            async with follower(served.running) as slave:
                await slave.report(0)
                await until(lambda: bool(served.running.broker.cluster.ha.replicas.connected))
