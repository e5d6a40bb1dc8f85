"""A system clock that is wrong, or is set while the broker runs."""

from pathlib import Path

import pytest

from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, UpdateTopic
from tests.servers.broker.serving import serving
from tests.servers.broker.test_serving import max_offset, records


@pytest.mark.parametrize("now_ms", [-86_400_000, 0, 1_000])
async def test_a_clock_before_1970_or_set_back_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now_ms: int
) -> None:
    """Messages and locks of one time are there under the other."""
    queue = MessageQueue("T", "broker-a", 0)
    lock = LockQueues("G", "c", (queue,)).to_command()
    async with serving(tmp_path, messageDelayLevel="1h") as served:
        assert (await served.send("T", b"before")).code == 0
        assert LockedQueues.from_command(await served.ask(lock)).queues == (queue,)
        assert (await served.send("T", b"delayed before", "DELAY\x011\x02")).code == 0
        monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
        assert (await served.send("T", b"after")).code == 0
        assert (await served.send("T", b"delayed after", "DELAY\x011\x02")).code == 0
        other = LockQueues("G", "other", (queue,)).to_command()
        assert LockedQueues.from_command(await served.ask(other)).queues == ()
        beat = HeartBeat("c", ("P",), (ConsumerData("G", subscriptions=(SubscriptionData("T"),)),))
        assert (await served.ask(beat.to_command())).code == 0
        assert (await served.ask(UpdateTopic.of(TopicConfig("U", 4, 4)).to_command())).code == 0
        assert {record.body for record in records(await served.pull("T", wait_ms=1))} >= {b"before", b"after"}
        delayed = await max_offset(served, "SCHEDULE_TOPIC_XXXX", 0)
        assert delayed == 2
    async with serving(tmp_path, messageDelayLevel="1h") as served:
        assert {record.body for record in records(await served.pull("T"))} >= {b"before", b"after"}
        assert await max_offset(served, "SCHEDULE_TOPIC_XXXX", 0) == 2
        assert (await served.ask(GetTopicConfig("U").to_command())).code == 0
