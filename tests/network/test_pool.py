"""A pool: one connection an address, made once for all callers, replaced when dead; bounded calls; a clean end."""

from __future__ import annotations

import resource
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core.errors import CallTimeout, ConnectFailed, ConnectionClosed, InvalidArgument
from pyrmq_core.network import ConnectionPool, Peer
from pyrmq_core.network.connect import open_wire
from pyrmq_core.protocol.framing.command import Command, refusal, success
from tests.network.ends import Recorder, echo, serving, silent_port, until


async def test_all_callers_share_one_connect() -> None:
    recorder = Recorder()
    async with serving(recorder.at_once) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            for _ in range(50):
                callers.start_soon(partial(pool.call, listening.address, Command(1), timeout=60))
        assert len(set(recorder.peers)) == 1
        assert len(pool.connections) == 1
        assert pool.connections[0].address == listening.address
        await pool.aclose()


async def test_each_address_has_a_connection_of_its_own() -> None:
    async with serving(echo) as first, serving(echo) as other, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        for listening in (first, other, first):
            await pool.call(listening.address, Command(1), timeout=60)
        assert {connection.address for connection in pool.connections} == {first.address, other.address}
        pool.close(first.address)
        assert [connection.address for connection in pool.connections] == [other.address]
        pool.close("127.0.0.1:1")
        await pool.aclose()


async def test_a_host_name_is_an_address_too() -> None:
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        address = f"localhost:{listening.port}"
        assert (await pool.call(address, Command(1), timeout=60)).code == 0
        assert pool.connections[0].address == address
        await pool.aclose()


async def test_a_dead_connection_is_replaced_by_the_next_call() -> None:
    recorder = Recorder()
    async with serving(recorder.at_once) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        await pool.call(listening.address, Command(1), timeout=60)
        recorder.peers[0].connection.close()
        await until(lambda: not pool.connections)
        await pool.call(listening.address, Command(1), timeout=60)
        pool.close(listening.address)
        await pool.call(listening.address, Command(1), timeout=60)
        assert len(set(recorder.peers)) == 3
        await pool.aclose()


async def test_a_connection_that_is_full_is_not_ready() -> None:
    with silent_port() as address:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            connection = await pool.connection(address, timeout=60)
            assert pool.ready_connection(address) is connection
            while not connection.is_full:
                connection.post(Command(310, body=bytes(4 * 1024 * 1024)), timeout=30, done=lambda _: None)
            assert pool.ready_connection(address) is None
            assert pool.open_connection(address) is connection
            await pool.aclose()


async def test_one_way_requests_connect_too() -> None:
    recorder = Recorder()
    async with serving(recorder.at_once) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        await pool.send_oneway(listening.address, Command(15), timeout=60)
        await until(lambda: len(recorder.requests) == 1)
        assert recorder.requests[0].is_oneway
        await pool.aclose()


async def test_nothing_listens_there(closed_port: str) -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        for ask in (pool.call, pool.send_oneway):
            with pytest.raises(
                ConnectFailed, match=f"no connection to {closed_port}: connection refused; nothing"
            ) as caught:
                await ask(closed_port, Command(1), timeout=60)
            assert caught.value.address == closed_port
            assert not caught.value.request_left
        await pool.aclose()


async def test_a_failed_connect_fails_all_waiting_calls_and_the_next_tries_anew(closed_port: str) -> None:
    failures: list[ConnectFailed] = []

    async def call() -> None:
        with pytest.raises(ConnectFailed) as caught:
            await pool.call(closed_port, Command(1), timeout=60)
        failures.append(caught.value)

    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            for _ in range(5):
                callers.start_soon(call)
        assert len({id(failure) for failure in failures}) == 5
        host, port = closed_port.split(":")
        with trio.socket.socket() as listener:
            listener.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
            await listener.bind((host, int(port)))
            listener.listen()
            await pool.send_oneway(closed_port, Command(1), timeout=60)
        await pool.aclose()


async def test_an_unknown_host_name() -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, connect_timeout=60)
        for name in ("no-such-host.invalid", "a" * 64 + ".invalid"):
            with pytest.raises(ConnectFailed, match=f"no connection to {name}:1: ") as caught:
                await pool.call(f"{name}:1", Command(1), timeout=60)
            assert "\n" not in str(caught.value)
        await pool.aclose()


async def test_what_is_no_address_is_your_fault() -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        with pytest.raises(InvalidArgument, match="write host:port"):
            await pool.call("nowhere", Command(1), timeout=60)
        await pool.aclose()


async def test_connecting_ends_at_its_own_limit_and_at_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr("pyrmq_core.network.connect._connect", never)
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, connect_timeout=0.1)
        with pytest.raises(ConnectFailed, match=r"no server accepted within 0\.1 s"):
            await pool.call("127.0.0.1:1", Command(1), timeout=60)
        with pytest.raises(ConnectFailed, match=r"within 0\.02 s"):
            await pool.call("127.0.0.1:1", Command(1), timeout=0.02)
        await pool.aclose()


async def test_a_server_that_never_answers_costs_one_timeout() -> None:
    with silent_port() as address:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            await pool.connection(address, timeout=60)
            with pytest.raises(CallTimeout, match=f"{address} did not answer") as caught:
                await pool.call(address, Command(310), timeout=0.1)
            assert caught.value.request_left
            await pool.aclose()


async def test_a_cancelled_caller_does_not_cancel_the_connect_of_others() -> None:
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            with trio.CancelScope() as scope:
                callers.start_soon(partial(pool.call, listening.address, Command(1), timeout=60))
                scope.cancel()
                await pool.call(listening.address, Command(1), timeout=60)
            assert scope.cancelled_caught
        await pool.aclose()


async def test_calls_under_way_are_bounded_and_waiting_counts() -> None:
    recorder = Recorder()
    answered: list[int] = []

    async def call(number: int) -> None:
        await pool.call(listening.address, Command(11), timeout=60)
        answered.append(number)

    async with serving(recorder.held) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, max_calls=3)
        async with trio.open_nursery() as callers:
            for number in range(5):
                callers.start_soon(call, number)
            await until(lambda: recorder.running == 3)
            await wait_all_tasks_blocked()
            assert len(recorder.requests) == 3
            with pytest.raises(CallTimeout, match=r"waited 0\.05 s while 3 calls were under way") as caught:
                await pool.call(listening.address, Command(11), timeout=0.05)
            assert not caught.value.request_left
            await pool.send_oneway(listening.address, Command(15), timeout=60)
            recorder.gate.set()
        assert len(answered) == 5
        await pool.aclose()


async def test_permits_come_back_however_a_call_ends(closed_port: str) -> None:
    async with serving(lambda request, peer: None) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, max_calls=1)
        await pool.connection(listening.address, timeout=60)
        for _ in range(3):
            with pytest.raises(CallTimeout, match="did not answer"):
                await pool.call(listening.address, Command(11), timeout=0.25)
            with trio.move_on_after(0.02):
                await pool.call(listening.address, Command(11), timeout=60)
            with pytest.raises(ConnectFailed):
                await pool.call(closed_port, Command(11), timeout=60)
            with pytest.raises(ConnectFailed):
                await pool.send_oneway(closed_port, Command(11), timeout=60)
        await pool.aclose()


async def test_a_server_that_goes_away_is_asked_once_more_over_a_new_connection() -> None:
    refused: set[Peer] = set()

    def go_away_once(request: Command, peer: Peer) -> Command:
        if not refused:
            refused.add(peer)
        return refusal(1500, "go away") if peer in refused else success({"n": request.ext["n"]})

    async with serving(go_away_once) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        answer = await pool.call(listening.address, Command(310, {"n": "1"}), timeout=60)
        assert (answer.code, answer.ext["n"]) == (0, "1")
        assert len(pool.connections) == 1
        assert pool.connections[0].peer.local_address not in {peer.address for peer in refused}
        await pool.aclose()


async def test_a_server_that_goes_away_twice_is_believed() -> None:
    async with serving(lambda request, peer: refusal(1500, "go away")) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        assert (await pool.call(listening.address, Command(310), timeout=60)).code == 1500
        await pool.aclose()


async def test_a_retired_connection_still_answers_what_is_under_way() -> None:
    recorder = Recorder()

    def serve_all(request: Command, peer: Peer) -> object:
        return recorder.held(request, peer) if request.code == 11 else refusal(1500, "go away")

    answers: list[Command] = []

    async def pull() -> None:
        answers.append(await pool.call(listening.address, Command(11), timeout=60))

    async with serving(serve_all) as listening, trio.open_nursery() as nursery:  # type: ignore[arg-type]
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            callers.start_soon(pull)
            await until(lambda: recorder.running == 1)
            assert (await pool.call(listening.address, Command(310), timeout=60)).code == 1500
            recorder.gate.set()
        assert [answer.code for answer in answers] == [0]
        await pool.aclose()


async def test_aclose_fails_what_is_under_way_and_leaves_no_task() -> None:
    recorder = Recorder()
    errors: list[str] = []

    async def call(address: str) -> None:
        with pytest.raises((ConnectionClosed, ConnectFailed)) as caught:
            await pool.call(address, Command(11), timeout=500)
        errors.append(str(caught.value))

    async with serving(recorder.held) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            for _ in range(10):
                callers.start_soon(call, listening.address)
            await until(lambda: recorder.running == 10)
            await pool.aclose()
            assert not nursery.child_tasks
        assert len(errors) == 10
        assert all("its pool was closed" in error for error in errors)
        with pytest.raises(ConnectFailed, match="the pool is closed"):
            await pool.call(listening.address, Command(1), timeout=60)
        await pool.aclose()


async def test_aclose_ends_a_connect_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    async def call() -> None:
        with pytest.raises(ConnectFailed, match="the pool was closed meanwhile"):
            await pool.call("127.0.0.1:1", Command(1), timeout=500)

    monkeypatch.setattr("pyrmq_core.network.connect._connect", never)
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, connect_timeout=500)
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        await pool.aclose()


async def test_a_pool_whose_nursery_ended_says_so() -> None:
    async with serving(echo) as listening:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            await pool.call(listening.address, Command(1), timeout=60)
            nursery.cancel_scope.cancel()
        assert not pool.connections
        with pytest.raises(ConnectFailed, match="pool was closed"):
            await pool.call(listening.address, Command(1), timeout=60)


async def test_an_unused_pool_has_no_task() -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        assert not nursery.child_tasks
        await pool.aclose()


async def test_deadlines_of_many_connections_are_one_task_s_work(jumping_clock: MockClock) -> None:
    recorder = Recorder()
    ended: list[float] = []

    async def call(address: str, timeout: float) -> None:
        with pytest.raises(CallTimeout):
            await pool.call(address, Command(11), timeout=timeout)
        ended.append(timeout)

    async with serving(recorder.held) as first, serving(recorder.held) as other, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as callers:
            for number in range(20):
                callers.start_soon(call, (first, other)[number % 2].address, 20.0 - number)
        assert ended == sorted(ended)
        assert len(ended) == 20
        await pool.aclose()


async def test_a_thousand_calls_at_once_over_real_sockets() -> None:
    async with serving(echo) as listening, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)

        async def call(number: int) -> None:
            for step in range(3):
                body = f"{number}.{step}".encode() * (1 + number % 50)
                assert (await pool.call(listening.address, Command(310, {}, body), timeout=30)).body == body

        async with trio.open_nursery() as callers:
            for number in range(1000):
                callers.start_soon(call, number)
        assert len(pool.connections) == 1
        await pool.aclose()


async def test_without_a_free_handle_the_error_names_the_limit() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # those of a process's own input and output
    try:
        with pytest.raises(ConnectFailed, match=r"Too many open files; .* raise .* \(ulimit -n\)"):
            await open_wire("127.0.0.1:9", tls=None, timeout=3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
