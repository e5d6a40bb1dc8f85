"""Java's clients as judges: each check is a feature as a Java program uses it, on our servers and on Apache's.

Where each feature is judged (`JudgeBroker.java` has the checks of this module):

| feature | Java's clients on ours | on Apache's, by the same program |
|---|---|---|
| pull, batches, compression | `test_java_on_our_servers` (`SendAndPull.java`) | - |
| push, SQL, orderly, broadcast, retry and dead letters, lite pull | here | here |
| delay levels, timers | here | here (timers: 5.x) |
| look-ups by key, unique id and offset id | here | here |
| producer and consumer connections, running info | here | here |
| resets, consumeMessageDirectly | `test_java_groups_on_our_broker` (`PushMembers.java`, `mqadmin`) | - |
| groups that members join and leave | `test_mixed_groups` (`GroupMembers.java`) | `test_mixed_groups` |
| transactions: each end, checks, a resumed one | `test_transactions` (`Transact.java`) | by our producer, there |
| requests and replies | `test_replies` (`Asker.java`, `Replier.java`) | with ours: `test_producer` |
| batch topics | `test_batch_topics` (`ReadBatchTopic.java`) | `test_batch_topics` |
| access control, TLS | `test_access_control` (`SignedClient.java`), `test_java_over_tls` | `test_security` |
| message traces | - | `test_consumer_trace` (`ReadTraces.java`) |
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.java_machine import JavaMachine
from tests.support.java_programs import own_machine
from tests.support.maven import ApacheUnavailable

pytestmark = pytest.mark.timeout(360)

PROGRAM = Path(__file__).parent / "java" / "JudgeBroker.java"
CHECKS = ("broadcast", "connections", "dead-letter", "delay", "lite-pull", "look-up", "orderly", "sql")
# A member whose first look for a route was too slow is without queues until the next rebalancing: 20 s by default.
OPTIONS = ("-Drocketmq.client.rebalance.waitInterval=500",)


@dataclass(frozen=True)
class Judge:
    """Java's client of a release, in a machine that runs it for all tests."""

    version: str
    machine: JavaMachine

    def faults(self, nameserver: str, *checks: str) -> list[str]:
        """Returns the line of each check that did not pass; they run side by side."""
        arguments = (nameserver, uuid.uuid4().hex[:8], *checks)
        lines = set(self.machine.run(PROGRAM.stem, *arguments, source=PROGRAM, timeout=240).splitlines())
        failed = sorted(line for line in lines if " failed: " in line)
        return failed or [f"{name} said nothing" for name in checks if f"{name} passed" not in lines]


@pytest.fixture(scope="module", params=NEWEST_AND_LONG_OLDER)
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(own_machine(request.param, OPTIONS))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {request.param}: {reason}")
        yield Judge(request.param, machine)


def test_our_broker_passes(judge: Judge) -> None:
    with EmbeddedCluster(brokers=2, settings={"enablePropertyFilter": "true"}) as cluster:
        assert judge.faults(cluster.nameserver, *CHECKS, "timer") == []


@pytest.mark.soak  # no line of ours runs: it judges the judge
def test_apaches_brokers_pass(judge: Judge, request: pytest.FixtureRequest) -> None:
    apache: ApacheCluster = request.getfixturevalue(f"apache_{judge.version[0]}")
    checks = (*CHECKS, "timer") if judge.version.startswith("5") else CHECKS
    assert judge.faults(apache.nameserver.address, *checks) == []
