"""Consumers of an ordinary user on our servers, with users and TLS alone on both."""

from __future__ import annotations

from pathlib import Path

import trio

from pyrmq_core import Client, Command
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.network import ConnectionPool
from tests.servers.access.requests import signed
from tests.support.certificates import Certificates
from tests.support.guarded import AUTH_5, KEY, MEMBER, READER_SECRET, SECRET, consume_all, member_requests


async def test_consumers_of_an_ordinary_user_work_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    encrypted = {**certificates.server(), **certificates.calls(), **AUTH_5}
    nameserver = {**encrypted, "authConfigPath": str(tmp_path / "auth")}
    async with (
        EmbeddedCluster(settings=encrypted, nameserver_settings=nameserver) as cluster,
        trio.open_nursery() as nursery,
    ):
        pool = ConnectionPool(nursery, tls=certificates.trusting())
        for address in (cluster.nameserver, cluster.brokers["broker-a"]):
            for request in member_requests():
                assert (await pool.call(address, signed(request, KEY, SECRET), timeout=30)).code == 0
            assert (await pool.call(address, Command(105, {"topic": "TBW102"}), timeout=30)).code == 16
        await pool.aclose()

        def client(key: str, secret: str) -> Client:
            tls = certificates.trusting()
            return Client(nameserver=cluster.nameserver, access_key=key, secret_key=secret, tls=tls)

        async with client(KEY, SECRET) as administrator, client(MEMBER, READER_SECRET) as member:
            await consume_all(member, administrator)
        nursery.cancel_scope.cancel()
