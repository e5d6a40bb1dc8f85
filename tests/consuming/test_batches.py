"""Groups that consume batch topics of our own servers: what they give back is one message of a batch."""

from collections.abc import Iterator

import pytest

from pyrmq_core import Admin, Client, ConsumeLater, InvalidArgument
from pyrmq_core.blocking import EmbeddedCluster as BlockingCluster
from pyrmq_core.protocol.requests.client.consume_message_directly import ConsumeMessageDirectly
from pyrmq_core.testing import Command, EmbeddedCluster, Peer, RequestCode, success
from tests.support.batch_group_jobs import BatchGroupJobs, batch_sent
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.nameserver


class TestBatchGroupJobs(BatchGroupJobs):
    """All of them, in this process."""


async def test_no_member_is_handed_a_batch_in_place_of_a_message(nameserver: str) -> None:
    """A member of Java would take the bytes of the whole batch for one message."""
    topic, group, seen = await batch_sent(nameserver), fresh("group"), Seen()
    async with (
        Client(nameserver=nameserver) as client,
        Admin(client=client) as admin,
        consuming(nameserver, group, topic, seen),
    ):
        await seen.wait(10)
        message = seen.messages[3]
        with pytest.raises(InvalidArgument, match="lies in a batch that is one record"):
            await admin.messages.consume_directly(group, message)
        request = ConsumeMessageDirectly(group, "any", message.offset_msg_id, "broker-a", topic)
        answer = await client._session.call(message.store_host, request.to_command(), timeout=SECONDS)
        assert (answer.code, len(seen.messages)) == (1, 10)
        assert "is a batch that is one record" in (answer.remark or "")


async def test_no_broker_is_asked_to_take_a_batch_back() -> None:
    """An earlier broker of ours would take all of it."""
    group, seen = fresh("group"), Seen()
    seen.orders = {"7": [ConsumeLater(1)]}
    async with EmbeddedCluster() as cluster:

        async def takes_it(request: Command, peer: Peer) -> Command:
            return success()

        rule = cluster.control(RequestCode.CONSUMER_SEND_MSG_BACK, takes_it)
        topic = await batch_sent(cluster.nameserver)
        async with consuming(cluster.nameserver, group, topic, seen):
            await seen.wait(11)
        assert (seen.bodies[10], len(rule.seen)) == ("7", 0)
