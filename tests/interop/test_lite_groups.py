"""Groups of lite topics on 5.5.0, `Admin.lite_topics` there, and 5.5.0's mqadmin on our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from pyrmq_core import Admin, Message, Producer, ResponseError
from pyrmq_core.blocking import Admin as BlockingAdmin
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.blocking import Producer as BlockingProducer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps
from tests.interop.conftest import cluster_or_skip
from tests.support.apache import NEWEST, ApacheCluster, ask
from tests.support.java_programs import mqadmin
from tests.support.lite_group_jobs import LiteGroupJobs
from tests.support.lite_topic_jobs import SETTINGS

pytestmark = pytest.mark.soak

LITE = {"message.type": "LITE", "lite.topic.expiration": "30"}
PREFIX = "tenant%"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    with cluster_or_skip(NEWEST, ("broker-a",), broker_settings=SETTINGS) as cluster:
        yield cluster


class TestOnTheNewestRelease(LiteGroupJobs):
    """The jobs of every server."""

    @pytest.fixture
    def nameserver(self, cluster: ApacheCluster) -> str:
        return cluster.nameserver.address


@pytest.mark.parametrize("namespace", [None, "tenant"])
async def test_lite_topics_are_described(cluster: ApacheCluster, namespace: str | None) -> None:
    nameserver, broker = cluster.nameserver.address, cluster.brokers["broker-a"].address
    prefix = PREFIX if namespace else ""
    group = {"groupName": f"{prefix}g", "attributes": {"+lite.bind.topic": f"{prefix}T"}}
    ends: dict[str, object] = {
        "action": "PARTIAL_ADD",
        "clientId": f"c{prefix}",
        "group": f"{prefix}g",
        "topic": f"{prefix}T",
    }
    ends.update(liteTopicSet=["s", "t", "none"], offsetOption={"type": "POLICY", "value": 1})
    async with (
        Admin(nameserver=nameserver, namespace=namespace, timeout=30) as admin,
        Producer("p", nameserver=nameserver, namespace=namespace, send_timeout=30) as producer,
    ):
        await admin.create_topic("T", queues=4, attributes=LITE)
        assert ask(broker, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(group))).code == 0
        for name in "sst":
            await producer.send(Message("T", b"body", lite_topic=name))
        lite = admin.lite_topics
        with trio.fail_after(60):
            while (await lite.info("T", "t")).answers["broker-a"].offset.max_offset < 1:  # noqa: ASYNC110
                await trio.sleep(0.1)
        control = Command(RequestCode.LITE_SUBSCRIPTION_CTL, body=dumps({"subscriptionSet": [ends]}))
        assert ask(broker, control).code == 0
        told = (await lite.brokers()).answers["broker-a"]
        assert (told.topics[f"{prefix}T"], told.groups[f"{prefix}T"]) == (30, (f"{prefix}g",))
        parent = (await lite.parent("T")).answers["broker-a"]
        assert (parent.topic, parent.groups, parent.lite_topics, parent.expiration_minutes) == ("T", ("g",), 2, 30)
        topic = (await lite.info("T", "s")).answers["broker-a"]
        assert (topic.parent_topic, topic.lite_topic, topic.is_assigned) == ("T", "s", True)
        assert (topic.offset.min_offset, topic.offset.max_offset) == (0, 2)
        assert [(client.client_id, client.group) for client in topic.subscribers] == [(f"c{prefix}", "g")]
        client = (await lite.client("T", "g", f"c{prefix}")).answers["broker-a"]
        assert (client.count, client.lite_topics) == (3, ("none", "s", "t"))
        stranger = (await lite.client("T", "g", "stranger")).answers["broker-a"]
        assert (stranger.count, stranger.last_access_ms, stranger.lite_topics) == (-1, -1, None)
        lags = (await lite.group("T", "g", most=1)).answers["broker-a"]
        assert (lags.group, lags.parent_topic, lags.lag, lags.by_age) == ("g", "T", 3, ())
        assert [(row.lite_topic, row.lag) for row in lags.by_lag or ()] == [("s", 2)]
        lag = (await lite.group("T", "g", "s")).answers["broker-a"]
        assert (lag.lag, lag.offset and lag.offset.broker_offset, lag.by_lag) == (2, 2, None)
        assert (await lite.group("T", "g", "nothing")).answers["broker-a"].lag == -1
        assert await lite.dispatch("T", "g") == ("broker-a",)
        assert await lite.dispatch("T", "g", f"c{prefix}") == ("broker-a",)
        with pytest.raises(ResponseError, match="is not a LITE group"):
            await lite.dispatch("T", "other")


def test_mqadmin_shows_lite_topics_of_our_broker() -> None:
    with EmbeddedCluster(settings=SETTINGS) as ours:
        with (
            BlockingAdmin(nameserver=ours.nameserver, timeout=30) as admin,
            BlockingProducer("p", nameserver=ours.nameserver, send_timeout=30) as producer,
        ):
            admin.create_topic("T", queues=4, attributes=LITE)
            for name in "sst":
                producer.send(Message("T", b"body", lite_topic=name))
            (broker,) = [data.master for data in admin.route("T").broker_datas]
            name = admin.route("T").broker_datas[0].broker_name

        def shown(*arguments: str) -> list[str]:
            return mqadmin(NEWEST, *arguments, nameserver=ours.nameserver).split()

        row = shown("getBrokerLiteInfo", "-b", str(broker), "-d")
        assert row[row.index(str(broker)) :] == [
            *(str(broker), "default", "20000", "2", "0", "0", "3", "0", "0"),
            *("Topic", "Meta:", '{"T":30}', "Group", "Meta:", "{}"),
        ]
        assert shown("getParentTopicInfo", "-p", "T")[-5:] == [name, "30", "2", "2", "null"]
        row = shown("getLiteTopicInfo", "-p", "T", "-l", "s")
        assert f" {name} 0 2 " in " ".join(row)
        assert row[-2:] == ["true", "0"]
        assert shown("triggerLiteDispatch", "-p", "T", "-g", "g")[-2:] == [name, "error"]
        for arguments in (("getLiteClientInfo", "-c", "c"), ("getLiteGroupInfo",)):
            assert f"[{name}] error." in " ".join(shown(*arguments, "-p", "T", "-g", "g"))
