"""The log lines of every background request of a broker that a server refuses, or never answers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pyrmq_core.errors import CallTimeout
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from tests.servers.broker.ha.slave_copies import copy_of
from tests.servers.broker.nameservers import nameservers
from tests.servers.broker.serving import serving, until

TOPICS = RequestCode.GET_ALL_TOPIC_CONFIG
WORDS = "the words of the test"
REFUSED = pytest.mark.parametrize("refused", [True, False], ids=["refused", "not answered"])


def warnings(caplog: pytest.LogCaptureFixture, *texts: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [line for line in lines if all(text in line for text in texts)]


@REFUSED
async def test_a_registration_that_a_nameserver_does_not_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        nameservers(1) as (server,),
        serving(tmp_path, namesrvAddr=server.address, registerBrokerTimeoutMills="100") as served,
    ):
        server.answers = refused
        server.refused = frozenset({RequestCode.REGISTER_BROKER})
        served.running.broker.cluster.registration.register_now()
        words = WORDS if refused else "did not answer"
        await until(lambda: bool(warnings(caplog, "not registered with NameServer", server.address, words)))
        server.answers, server.refused = True, frozenset()
        caplog.clear()
        await until(lambda: f"broker-a is registered with NameServer {server.address}" in caplog.text)


@REFUSED
async def test_an_unregistration_that_a_nameserver_does_not_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    async with nameservers(1) as (server,):
        async with serving(tmp_path, namesrvAddr=server.address):
            server.answers = refused
            server.refused = frozenset({RequestCode.UNREGISTER_BROKER})
        assert warnings(caplog, "not unregistered", server.address, WORDS if refused else "did not answer")


@REFUSED
async def test_a_table_that_a_master_does_not_give_its_slave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    async def answer(_: Command) -> Command:
        if refused:
            return refusal(ResponseCode.NO_PERMISSION, WORDS)
        raise CallTimeout("the master did not answer within 3 s", address="the master", request_left=True)

    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        copy.answers[TOPICS] = answer
        await copy.tables.fetch()
        assert warnings(caplog, "topics of the master at", "are not taken", WORDS if refused else "did not answer")
