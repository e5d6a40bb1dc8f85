"""Modes of groups (401) and the queues of their members (400): allocation, the file, and what a slave gets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat
from pyrmq_core.protocol.requests.pop.assignments import Assignments, QueryAssignment, RequestMode, SetRequestMode
from pyrmq_core.servers.broker.processors.pops.assignments import assigned
from tests.servers.broker.serving import Served, serving

QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(3)]
PULL = SetRequestMode("T", "G", RequestMode.PULL)


def popping(share: int) -> SetRequestMode:
    return SetRequestMode("T", "G", RequestMode.POP, share)


@given(st.integers(1, 9), st.sampled_from(["AVG", "AVG_BY_CIRCLE"]))
def test_members_that_pull_have_each_queue_once(members: int, strategy: str) -> None:
    ids = [f"c{number}" for number in range(members)]
    queues = [queue for each in ids for queue in assigned(PULL, strategy, each, QUEUES, ids) or ()]
    assert sorted(queues) == QUEUES


@given(st.integers(1, 9), st.integers(-1, 9))
def test_members_that_pop_share_queues_and_leave_none_out(members: int, share: int) -> None:
    ids = [f"c{number}" for number in range(members)]
    lists = [list(assigned(popping(share), "AVG", each, QUEUES, ids) or ()) for each in ids]
    assert all(lists)
    if share <= 0 or share >= members - 1:
        assert all(queues == [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)] for queues in lists)
    else:
        assert {queue for queues in lists for queue in queues} == set(QUEUES)
        own = [list(assigned(PULL, "AVG", each, QUEUES, ids) or ()) for each in ids]
        for number, queues in enumerate(lists):
            if members > len(QUEUES):
                assert len(queues) == 1
            else:
                assert queues == [queue for step in range(share + 1) for queue in own[(number + step) % members]]


def test_a_member_that_is_not_listed_and_an_unknown_strategy() -> None:
    assert assigned(PULL, "AVG", "c9", QUEUES, ["c0"]) == []
    assert assigned(PULL, "CONSISTENT_HASH", "c0", QUEUES, ["c0"]) is None


async def ask_assignment(served: Served, client_id: str = "c0") -> Assignments:
    answer = await served.ask(QueryAssignment("T", "G", client_id).to_command())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return Assignments.from_command(answer)


async def test_a_mode_stays_over_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T")
        assert (await ask_assignment(served)).queues is None  # no member sent a heartbeat
        await beat(served)
        pulled = (await ask_assignment(served)).queues
        assert pulled is not None
        assert [(row.queue.queue_id, row.mode) for row in pulled] == [(at, RequestMode.PULL) for at in range(4)]
        assert (await served.ask(popping(0).to_command())).code == ResponseCode.SUCCESS
    async with serving(tmp_path) as served:
        await beat(served)
        (row,) = (await ask_assignment(served)).queues or ()
        assert (row.queue, row.mode) == (MessageQueue("T", "broker-a", -1), RequestMode.POP)
        modes = load_object((await served.ask(Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))).body, "modes")
        row_of_group = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0, "topic": "T"}
        assert modes == {"messageRequestModeMap": {"T": {"G": row_of_group}}}


async def beat(served: Served) -> None:
    group = ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", ())
    assert (await served.ask(HeartBeat("c0", (), (group,)).to_command())).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        (SetRequestMode("nope", "G", RequestMode.POP), ResponseCode.TOPIC_NOT_EXIST),
        (SetRequestMode("%RETRY%G", "G", RequestMode.POP), ResponseCode.NO_PERMISSION),
        (SetRequestMode("T", "../g", RequestMode.POP), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_a_mode_that_cannot_be_is_refused(tmp_path: Path, mode: SetRequestMode, code: int) -> None:
    async with serving(tmp_path) as served:
        await served.send("T")
        assert (await served.ask(mode.to_command())).code == code
        assert (await served.ask(Command(RequestCode.QUERY_ASSIGNMENT, body=b"{}"))).code != ResponseCode.SUCCESS
