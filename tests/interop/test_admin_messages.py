"""Stored messages of Apache RocketMQ, administered by us."""

from __future__ import annotations

import re

import pytest
import trio

from pyrmq_core.client.admin.message_tracks import TrackType
from tests.support.apache import ApacheCluster
from tests.support.consumer_jobs import Seen, consuming, fresh, made_topic
from tests.support.group_admin_jobs import administering
from tests.support.message_admin_jobs import MessageAdminJobs, eventually, found, of_group, sent


class TestNewest(MessageAdminJobs):
    @pytest.fixture
    async def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


@pytest.mark.soak
class TestOlder(MessageAdminJobs):
    @pytest.fixture
    async def nameserver(self, apache_4: ApacheCluster) -> str:
        return apache_4.nameserver.address


async def test_tracks_are_those_of_mqadmin(apache: ApacheCluster) -> None:
    nameserver = apache.nameserver.address
    topic, here, gone = await made_topic(nameserver, 1), fresh("here"), fresh("gone")
    async with administering(nameserver) as admin, consuming(nameserver, here, topic, seen := Seen()):
        async with consuming(nameserver, gone, topic, also := Seen()):
            message = await found(admin, topic, await sent(nameserver, topic, keys="k1"))
            await seen.wait(1)
            await also.wait(1)
        tracks = await eventually(
            lambda: admin.messages.track(message),
            lambda tracks: of_group(tracks, here).track_type is TrackType.CONSUMED,
        )
        named = ("-t", topic) if apache.version.startswith("5") else ()
        printed = await trio.to_thread.run_sync(apache.mqadmin, "queryMsgById", "-i", message.offset_msg_id, *named)
    listed = re.findall(r"consumerGroup=([^,]+), trackType=(\w+)", printed)
    assert sorted(listed) == sorted((track.group, track.track_type.value) for track in tracks), printed
