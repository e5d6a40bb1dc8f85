"""Random inputs for what all members of a group compute alike, and the results of Java's classes.

`python -m tests.support.group_vectors` writes tests/golden/java_allocations.json and java_subscriptions.json anew.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from pyrmq_core import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
    InvalidArgument,
    MessageQueue,
)
from pyrmq_core.client.consumer.rebalance.strategies import sort_client_ids, sort_queues
from tests.support import golden
from tests.support.apache import VERSIONS
from tests.support.java_programs import run_java

JAVA = Path(__file__).parent.parent / "interop" / "java"
ALLOCATIONS = "java_allocations.json"
SUBSCRIPTIONS = "java_subscriptions.json"
SEED = 20
CASES = 180

Case = dict[str, Any]

# Names that sort, split and hash otherwise in Java than a careless reader would think.
BROKERS = [
    *("broker-a", "broker-A", "Broker-a", "b-1", "b-2", "b-10", "b-02", "b", "b_1", "b.1", "äb", "zb", "ﬀ", "𐐷b", "😀"),
    *("hz@b1", "hz@b2", "sh@b1", "sh@B1", "HZ@b1", "@b", "hz@", "hz@b@", "hz@b@c", "hz@@", "机房@经纪"),
]
CLIENTS = [
    *("10.0.0.1@1", "10.0.0.2@2", "10.0.0.10@3", "10.0.0.1@DEFAULT", "10.0.0.1@default", "10.0.0.1", "C", "c", "ç"),
    *("hz@1", "hz@10", "hz@2", "sh@1", "HZ@1", "机房@1", "客户", "ﬀ@1", "𐐷@1", "😀", "@", "c-1", "c-10", "c-2"),
]
TOPICS = ["T", "TopicTest", "t", "%RETRY%group", "ns%T", "主题"]


def allocation_cases(random: Random, count: int) -> list[Case]:
    """Returns inputs of every kind; about every fourth has more members than queues."""
    fixed = [
        _case([("T", "b", 0)], []),
        _case([], ["c"]),
        _case(
            [("TopicTest", f"broker-{b}", i) for b in "ab" for i in range(4)], [f"10.0.0.{n}@{n}" for n in (1, 2, 3)]
        ),
        _case([("TopicTest", f"broker-{b}", i) for b in "ab" for i in range(4)], [f"c{n}" for n in range(10)]),
        _case([("T", broker, 0) for broker in BROKERS], CLIENTS),
        _case([(topic, "b", 0) for topic in TOPICS], ["hz@1", "hz@1", "sh@1"]),
    ]
    return [*fixed, *(_random_case(random) for _ in range(count - len(fixed)))]


def _random_case(random: Random) -> Case:
    in_rooms = random.random() < 0.3  # else a resolver of rooms nearly always fails
    brokers = [name for name in BROKERS if not in_rooms or name.find("@") > 0]
    clients = [name for name in CLIENTS if not in_rooms or name.find("@") > 0]
    topic = random.choice(TOPICS)
    chosen = random.sample(brokers, random.randint(1, 4))
    queues = [(topic, broker, i) for broker in chosen for i in range(random.choice((1, 1, 2, 3, 4, 5, 11)))]
    ids = random.sample(clients, random.randint(1, min(len(clients), random.choice((2, 3, 5, 9)))))
    if random.random() < 0.2:
        ids += [f"{random.choice(ids)}@{random.randrange(100_000)}" for _ in range(random.randint(1, 6))]
    if random.random() < 0.05:
        ids.append(random.choice(ids))  # a client with two connections is listed twice
    random.shuffle(queues)
    random.shuffle(ids)
    rooms = random.choice((["hz"], ["hz", "sh"], ["HZ", "机房", ""], []))
    configured = sorted(random.sample(range(len(queues)), random.randint(0, min(3, len(queues)))))
    return _case(queues, ids, rooms, configured, random.choice((10, 10, 10, 1, 3, 40)))


def _case(
    queues: list[tuple[str, str, int]],
    ids: list[str],
    rooms: list[str] | None = None,
    configured: list[int] | None = None,
    virtual_nodes: int = 10,
) -> Case:
    return {
        "queues": [list(queue) for queue in queues],
        "ids": ids,
        "rooms": ["hz"] if rooms is None else rooms,
        "configured": configured or [],
        "virtualNodes": virtual_nodes,
        "stranger": "hz@stranger",
    }


def subscription_inputs(random: Random, count: int) -> list[list[str | None]]:
    """Returns expressions with their type: odd ones by hand, then random pieces of such."""
    by_hand: list[str | None] = [
        None,
        "",
        "*",
        " ",
        " * ",
        "* || a",
        "||",
        " || ",
        "|| ||",
        "||||",
        "|",
        "a|b",
        "a|||b",
    ]
    by_hand += ["a", " a ", "a||b", " a || b ", "a||a", "a || A", "a||", "||a", "a|| ||b", "a b", "\ta\n||b\r", "a\x00"]
    by_hand += [
        "标签||b",
        "😀 || 😀",
        "\u3000a\u3000",
        "a\u00a0||\u00a0",
        "\u2003",
        "Aa||BB",
        "polygenelubricants",
        "ﬀ",
    ]
    pieces = ["||", "|", " ", "a", "b", "TagA", "*", "标", "😀", "\u3000", "\t"]
    words = ["".join(random.choices(pieces, k=random.randint(1, 9))) for _ in range(count)]
    inputs: list[list[str | None]] = [[text, "TAG"] for text in (*by_hand, *words)]
    return [*inputs, ["a || b", None], ["", "SQL92"], [None, "SQL92"], ["a > 1", "SQL92"], [" ", "SQL92"], ["a", "tag"]]


def java_allocations(version: str, cases: list[Case]) -> list[Case]:
    """Returns what a release's strategies make of the cases; see AllocateQueues.java."""
    return _java_results(version, "AllocateQueues.java", cases)


def java_subscriptions(version: str, inputs: list[list[str | None]]) -> list[Any]:
    """Returns what a release's FilterAPI makes of expressions; see BuildSubscriptions.java."""
    return _java_results(version, "BuildSubscriptions.java", inputs)


def _java_results(version: str, program: str, inputs: list[Any]) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="pyrmq-vectors-") as directory:
        given, results = Path(directory) / "given.json", Path(directory) / "results.json"
        given.write_text(json.dumps(inputs))
        run_java(version, JAVA / program, str(given), str(results))
        outputs: list[Any] = json.loads(results.read_text(encoding="utf-8"))
    assert len(outputs) == len(inputs), (program, version)
    return outputs


def our_allocation(case: Case) -> Case:
    """Returns our strategies' results for one case, in the form of Java's; errors as the error's class."""
    queues = [MessageQueue(*queue) for queue in case["queues"]]
    sorted_queues, sorted_ids = sort_queues(queues), sort_client_ids(case["ids"])
    ring = AllocateMessageQueueConsistentHash(case["virtualNodes"])
    strategies: list[AllocateMessageQueueStrategy] = [
        AllocateMessageQueueAveragely(),
        AllocateMessageQueueAveragelyByCircle(),
        ring,
        AllocateMessageQueueByMachineRoom(case["rooms"]),
        AllocateMessageQueueByConfig(sorted_queues[place] for place in case["configured"]),
        AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), BeforeAt()),
        AllocateMachineRoomNearby(ring, BeforeAt()),
    ]
    return {
        "queues": [queues.index(queue) for queue in sorted_queues],
        "ids": [case["ids"].index(client_id) for client_id in sorted_ids],
        **{strategy.name: _shares(strategy, case["stranger"], sorted_queues, sorted_ids) for strategy in strategies},
    }


def _shares(
    strategy: AllocateMessageQueueStrategy, stranger: str, queues: Sequence[MessageQueue], ids: Sequence[str]
) -> list[list[int]] | type[Exception]:
    try:
        shares = [strategy.allocate("group", client_id, queues, ids) for client_id in (*ids, stranger)]
    except InvalidArgument as error:
        return type(error)
    return [[queues.index(queue) for queue in share] for share in shares]


class BeforeAt:
    """The resolver of AllocateQueues.java: the room is the text before the first "@"."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        return self.consumer_deploy_in(queue.broker_name)

    def consumer_deploy_in(self, client_id: str) -> str:
        room, at, _ = client_id.partition("@")
        return room if at else ""


def comparable(java: Case) -> Case:
    """Returns Java's results with our error in place of its exceptions."""
    return {name: InvalidArgument if isinstance(output, str) else output for name, output in java.items()}


def write_golden() -> None:
    """Writes both files from both releases; raises if these do not agree."""
    cases = allocation_cases(Random(SEED), CASES)
    first, second = (java_allocations(version, cases) for version in VERSIONS)
    assert first == second, "the releases allocate differently"
    _write(ALLOCATIONS, [{"given": case, "java": output} for case, output in zip(cases, first, strict=True)])
    inputs = subscription_inputs(Random(SEED), 60)
    first, second = (java_subscriptions(version, inputs) for version in VERSIONS)
    assert first == second, "the releases subscribe differently"
    rows = zip(inputs, first, strict=True)
    _write(SUBSCRIPTIONS, [{"expression": text, "type": kind, "java": output} for (text, kind), output in rows])


def _write(name: str, rows: list[Case]) -> None:
    lines = (json.dumps(row, separators=(",", ":")) for row in rows)
    (golden.DIRECTORY / name).write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    write_golden()
