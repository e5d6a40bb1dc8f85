"""Members that go on while their topic is deleted and made again: they begin the new topic at its first message."""

from __future__ import annotations

from pathlib import Path

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic
from tests.servers.broker.serving import serving
from tests.servers.broker.test_consumer_admin import commit, committed, member, pull, with_messages


async def test_a_group_without_members_keeps_its_offsets_of_a_topic_that_is_made_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        await commit(served, 4)
        assert (await served.ask(DeleteTopic("T").to_command())).code == ResponseCode.SUCCESS
        await with_messages(served)
        assert (await commit(served, 3)).remark is None
        assert await committed(served) == 3
        assert (await pull(served, 3)).code == ResponseCode.SUCCESS


async def test_a_member_that_begins_at_0_needs_no_move(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        owner = await member(served, lambda request, peer: None)
        await pull(owner, 4)
        await served.ask(DeleteTopic("T").to_command())
        await served.send("T")
        assert (await pull(owner, 0)).code == ResponseCode.SUCCESS
        assert (await commit(owner, 1)).remark is None


async def test_members_of_a_deleted_topic_begin_a_new_one_at_0(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        owner = await member(served, lambda request, peer: None)
        assert (await pull(owner, 4)).code == ResponseCode.PULL_NOT_FOUND
        assert (await served.ask(DeleteTopic("T").to_command())).code == ResponseCode.SUCCESS
        for number in range(6):
            await served.send("T", b"%d" % number)
        assert (await commit(owner, 4)).remark == "Offset has been previously reset"
        moved = await pull(owner, 4)
        assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
        assert (await pull(owner, 0)).code == ResponseCode.SUCCESS
        assert (await pull(owner, 4)).code == ResponseCode.SUCCESS
        assert (await commit(owner, 5)).remark is None
        assert await committed(served) == 5
