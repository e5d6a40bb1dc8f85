"""SQL92 expressions of consumers: brokers check them, and the client warns of what they ignore."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pyrmq_core import LitePullConsumer, PushConsumer
from pyrmq_core.client.consumer import sql_checks
from pyrmq_core.protocol.framing.command import VERSION, success
from pyrmq_core.protocol.framing.versions import V5_0_0
from pyrmq_core.testing import Command, EmbeddedCluster, Peer, RequestCode
from tests.support.consumer_jobs import fresh, made_topic


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("face", [PushConsumer, LitePullConsumer])
@pytest.mark.parametrize(
    ("expression", "version", "warning"),
    [
        ("amount >", VERSION, ""),  # of no dialect, yet the broker takes it
        ("amount > 3 -- three", VERSION, "only up to character 11 and ignores the rest: '-- three'"),
        ("amount > 3 ANDD paid = TRUE", VERSION, "ignores the rest: 'ANDD paid = TRUE'"),
        ("region CONTAINS 'eu'", VERSION, ""),
        ("region CONTAINS 'eu'", V5_0_0, "ignores the rest: \"CONTAINS 'eu'\"; CONTAINS, STARTSWITH and"),
    ],
)
async def test_brokers_decide_which_sql_they_take(
    cluster: EmbeddedCluster,
    caplog: pytest.LogCaptureFixture,
    face: type[PushConsumer] | type[LitePullConsumer],
    expression: str,
    version: int,
    warning: str,
) -> None:
    """The client warns of what its broker will ignore, and refuses nothing itself."""
    topic = await made_topic(cluster.nameserver)

    async def take(request: Command, peer: Peer) -> Command:
        return replace(success(), version=version)

    cluster.control(RequestCode.CHECK_CLIENT_CONFIG, take)
    async with face(fresh("group"), nameserver=cluster.nameserver) as consumer:
        await consumer.subscribe(topic, sql=expression)
    warnings = warnings_in(caplog)
    assert len(warnings) == (1 if warning else 0)
    assert warning in "".join(warnings)


async def test_sql_that_no_broker_can_check_yet_is_warned_of(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with PushConsumer(fresh("group"), nameserver=cluster.nameserver) as consumer:
        await consumer.subscribe("nowhere", sql="amount > 3")
        assert warnings_in(caplog) == []
        await consumer.subscribe("nowhere", sql="amount >")
    (line,) = warnings_in(caplog)
    assert "no broker has topic nowhere yet" in line
    assert "'amount >' has the end at character 9" in line


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == sql_checks.__name__]
