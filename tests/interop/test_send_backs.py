"""Messages sent back, and batches of one queue: the same outcomes on our broker and on Apache's, case by case."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import pytest

from pyrmq_core import Admin, Client
from pyrmq_core.testing import EmbeddedCluster
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.raw_send_backs import Outcomes, batch_send_backs, batches, send_backs

Cases = Callable[[Outcomes], Awaitable[dict[str, Any]]]
# Refused here in other words: the code on ours, and the reason.
REFUSED: Final[Mapping[str, tuple[int, str]]] = {
    "cut short": (13, "Java's text is that of an exception"),
    "nonsense": (13, "the same"),
    "a large body": (1, "the same"),
    "half": (13, "RocketMQ stores such a batch at once, and its producer waits for a transaction"),
}
# 4.9 adds fewer properties, and has other words.
COMPARED: Final = ("DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "ORIGIN_MESSAGE_ID")


async def outcomes(nameserver: str, cases: Cases, *, batch: bool = False) -> dict[str, Any]:
    unique = uuid.uuid4().hex[:8]
    async with Client(nameserver=nameserver) as client, Admin(client=client, timeout=20) as admin:
        await admin.create_topic(f"t_{unique}", queues=2, batch=batch)
        return await cases(Outcomes(client, f"t_{unique}", f"g_{unique}"))


@pytest.mark.parametrize("cases", [send_backs, batches])
@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
async def test_each_case_has_the_outcome_of_apaches_broker(
    request: pytest.FixtureRequest, version: str, cases: Cases
) -> None:
    apache: ApacheCluster = request.getfixturevalue(f"apache_{version[0]}")
    async with EmbeddedCluster() as cluster:
        ours = await outcomes(cluster.nameserver, cases)
    for case in REFUSED.keys() & ours.keys():
        code, _, stored = ours.pop(case)
        assert (code, stored) == (REFUSED[case][0], []), case
    theirs = await outcomes(apache.nameserver.address, cases)
    if version == "4.9.7":
        ours, theirs = without_words(ours), without_words(theirs)
    different = [case for case in ours if ours[case] != theirs[case]]
    assert not different, "".join(f"\n{case}\n  ours   {ours[case]}\n  theirs {theirs[case]}" for case in different)


async def test_a_batch_record_is_refused_where_one_message_belongs(apache_5: ApacheCluster) -> None:
    """4.9 has no batch topics."""
    async with EmbeddedCluster() as cluster:
        ours = await outcomes(cluster.nameserver, batch_send_backs, batch=True)
    theirs = await outcomes(apache_5.nameserver.address, batch_send_backs, batch=True)
    assert set(ours) == set(theirs)
    for case, theirs_of_case in theirs.items():
        assert first_line(ours[case]) == theirs_of_case, case


def first_line(row: Any) -> Any:
    """Returns a row without what our broker's words add to RocketMQ's, in lines of their own."""
    return (row[0], row[1].removesuffix("*"), row[2]) if len(row) == 3 else row


def without_words(rows: dict[str, Any]) -> dict[str, Any]:
    """Returns each row's code, 1 for 29, and its messages with their place and `COMPARED`."""
    return {
        case: (
            1 if row[0] == 29 else row[0],
            [
                (topic, queue_id, body, tries, {name: properties.get(name) for name in COMPARED})
                for topic, queue_id, messages in row[2]
                for body, tries, _, _, properties in messages
            ],
        )
        for case, row in rows.items()
        if "its " not in case and case != "a retry topic"  # 4.9 shows no topic's settings, and takes such batches
    }
