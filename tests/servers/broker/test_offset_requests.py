"""Requests for offsets, over a store, three tables and the clients in memory: no broker, no socket."""

from __future__ import annotations

from typing import cast

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    SearchOffset,
    StoreTimeFound,
)
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.processors.offsets import OffsetRequests
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, SMALL, Sent, opened, put

NO_PEER = cast(Peer, None)
MESSAGES = 3


class Desk:
    """The handlers of the family over a store with three messages of topic T, queue 0."""

    def __init__(self) -> None:
        files = MemoryFiles()
        store = opened(files, SMALL)
        for number in range(MESSAGES):
            put(store, Sent("T", 0, (b"%d" % number,)))
        self.groups = GroupTable(files, auto_create=False)
        self.groups.put({"groupName": "G"}, NOW_MS)
        self.topics = TopicTable(files, BrokerConfig())
        self.topics.put(TopicConfig("T", 1, 1, 6), NOW_MS)
        self.offsets = GroupOffsets(files)
        family = OffsetRequests(store.reader, self.offsets, self.groups, self.topics, ClientTable())
        self.handlers = family.handlers()

    def ask(self, request: Command) -> Command:
        answer = self.handlers[request.code](request, NO_PEER)
        assert isinstance(answer, Command)
        return answer

    def offset(self, request: Command) -> int:
        return OffsetFound.from_command(self.ask(request)).offset


def test_the_bounds_and_times_of_a_queue() -> None:
    desk = Desk()
    assert desk.offset(GetMinOffset("T", 0).to_command()) == 0
    assert desk.offset(GetMaxOffset("T", 0).to_command()) == MESSAGES
    assert desk.offset(SearchOffset("T", 0, NOW_MS + 60_000).to_command()) == MESSAGES
    assert desk.offset(SearchOffset("T", 0, 0).to_command()) == 0
    earliest = desk.ask(GetEarliestStoreTime("T", 0).to_command())
    assert StoreTimeFound.from_command(earliest).timestamp_ms == NOW_MS


@pytest.mark.parametrize("name", ["../T", "", "T" * 200])
def test_a_name_that_no_topic_has_is_refused_before_the_store_is_read(name: str) -> None:
    assert Desk().ask(GetMaxOffset(name, 0).to_command()).code == ResponseCode.INVALID_PARAMETER


async def test_a_group_begins_at_0_of_a_whole_queue_and_gets_what_it_committed() -> None:
    desk = Desk()
    assert desk.offset(QueryConsumerOffset("G", "T", 0).to_command()) == 0
    assert desk.ask(QueryConsumerOffset("G", "T", 1).to_command()).code == ResponseCode.QUERY_NOT_FOUND
    assert desk.ask(UpdateConsumerOffset("G", "T", 0, 2).to_command()).code == ResponseCode.SUCCESS
    assert desk.offset(QueryConsumerOffset("G", "T", 0).to_command()) == 2
    assert desk.offsets.committed("G", "T", 0) == 2


async def test_an_unknown_group_topic_or_queue_commits_nothing() -> None:
    desk = Desk()
    for group, topic, queue_id, code in (
        ("other", "T", 0, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("G", "other", 0, ResponseCode.TOPIC_NOT_EXIST),
        ("G", "T", -1, ResponseCode.INVALID_PARAMETER),
    ):
        assert desk.ask(UpdateConsumerOffset(group, topic, queue_id, 1).to_command()).code == code
    assert not len(desk.offsets)


def test_the_family_answers_its_six_requests() -> None:
    assert set(Desk().handlers) == {
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
