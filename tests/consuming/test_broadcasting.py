"""A broadcasting member that is started again: its name finds its offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio

from pyrmq_core import ConsumeFromWhere, LitePullConsumer, MessageExt, MessageModel
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.client.remoting.identity import offsets_id
from tests.support.consumer_jobs import Seen, consuming, made_topic, send


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster.nameserver


async def seen_in_one_life(nameserver: str, topic: str, folder: Path, name: str | None, count: int) -> list[str]:
    seen = Seen()
    async with consuming(
        nameserver,
        "caches",
        topic,
        seen,
        message_model=MessageModel.BROADCASTING,
        local_offset_store_dir=folder,
        instance_name=name,
    ):
        await seen.wait(count)
    return seen.bodies


async def test_a_named_member_goes_on_where_it_stopped(nameserver: str, tmp_path: Path) -> None:
    topic = await made_topic(nameserver, 1)
    await send(nameserver, topic, ["one"])
    assert await seen_in_one_life(nameserver, topic, tmp_path, "shop-1", 1) == ["one"]
    await send(nameserver, topic, ["two"])
    assert await seen_in_one_life(nameserver, topic, tmp_path, "shop-1", 1) == ["two"]
    assert sorted(await seen_in_one_life(nameserver, topic, tmp_path, "shop-2", 2)) == ["one", "two"]


async def test_a_member_without_a_name_begins_anew(nameserver: str, tmp_path: Path) -> None:
    topic = await made_topic(nameserver, 1)
    await send(nameserver, topic, ["one"])
    for _ in range(2):
        assert await seen_in_one_life(nameserver, topic, tmp_path, None, 1) == ["one"]


async def test_so_does_a_lite_pull_consumer(nameserver: str, tmp_path: Path) -> None:
    topic = await made_topic(nameserver, 1)
    for body in ("one", "two"):
        await send(nameserver, topic, [body])
        async with LitePullConsumer(
            "caches",
            nameserver=nameserver,
            instance_name="shop-1",
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            local_offset_store_dir=tmp_path,
        ) as consumer:
            await consumer.subscribe(topic)
            with trio.fail_after(60):
                messages: Sequence[MessageExt] = ()
                while not messages:
                    messages = await consumer.poll(1)
            assert [message.body.decode() for message in messages] == [body]
            await consumer.commit()


@pytest.mark.parametrize(
    ("ip", "name", "unit", "expected"),
    [
        ("10.0.0.1", "shop-1", None, "10.0.0.1@shop-1"),
        ("10.0.0.1", "shop-1", "east", "10.0.0.1@shop-1@east"),
        ("fd00::2", "shop-1", None, "[fd00::2]@shop-1"),
        ("10.0.0.1", None, None, "10.0.0.1@77#0"),
    ],
)
def test_the_id_is_javas_for_a_named_member(ip: str, name: str | None, unit: str | None, expected: str) -> None:
    assert offsets_id("10.0.0.1@77#0", ip, name, unit) == expected
