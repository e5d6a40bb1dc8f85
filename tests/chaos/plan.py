"""A plan: what happens to a cluster and its clients, step by step, drawn from a seed; nothing here waits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final

BROKERS: Final = ("broker-a", "broker-b")
# Of brokers of ours, those that answer a send when the message is on the medium, or with slaves, when theirs has it.
SAFE: Final = ("broker-a",)
NAMESERVERS: Final = ("nameserver-a", "nameserver-b")
SLAVES: Final = ("slave-a", "slave-b")
# The topic whose batches are stored message by message, and the topic whose batches are one record each.
PLAIN, PACKED = "plain", "packed"
TOPICS: Final = (PLAIN, PACKED)
# The groups beside that of the members that come and go, each of one member: one polls, one is broadcasting. A third,
# on brokers with access control, consumes in order.
POLLERS, LISTENERS, SORTERS = "pollers", "listeners", "sorters"
# The topic that is deleted and made again.
FLEETING: Final = "fleeting"
LONGEST_GAP_SECONDS: Final = 1.5
# A send has 3 s: a broker that stands still for longer than a try, and for less than the send.
PAUSES: Final = (0.5, 1.3, 2.0)
STALLS: Final = (0.7, 2.0, 5.0)
# A broker that is killed forgets a reset of the last seconds: after one, none is killed for so many steps.
STEPS_BETWEEN_RESET_AND_KILL: Final = 6


class Kind(StrEnum):
    """The effect of a step."""

    CUT = auto()  # ends the connections to a broker
    STALL = auto()  # holds what comes from clients (`up`), from the broker (`down`) or both
    PAUSE = auto()  # stops the broker's process, and has it go on
    KILL = auto()  # kills a broker, and starts it again
    JOIN = auto()  # starts a member of the group
    LEAVE = auto()  # stops the member that is longest there
    LOSE = auto()  # kills a member
    BURST = auto()  # sends many messages at once, so that members fall behind
    SKIP = auto()  # resets the group to the ends of a topic's queues
    REPLAY = auto()  # resets the group to where the last burst began
    GROW = auto()  # adds a queue to a topic at each broker
    KILL_NAMESERVER = auto()  # kills a NameServer, and starts it again: it knows no broker at first
    PAUSE_NAMESERVER = auto()  # stops a NameServer's process, and has it go on
    KILL_SLAVE = auto()  # kills a slave, and starts it again
    PROMOTE = auto()  # kills a master for good, while its slave stands still, and has the slave be the master
    CUT_POWER = auto()  # kills a broker that flushes before it answers, loses what it did not flush, starts it again
    FILL_DISK = auto()  # has no write of a broker succeed, and its disk be full
    READ_ONLY = auto()  # has clients not write to the topics at a broker
    WRITE_ONLY = auto()  # has clients not read the topics at a broker
    RESIZE = auto()  # has clients write to more of a topic's queues, or to fewer; they read all that ever were
    STEP_CLOCK = auto()  # sets a broker's clock forward (`up`), or back, and right again
    UPGRADE = auto()  # stops a broker in order, and starts another release on its files
    KILL_DRIVER = auto()  # kills the driver of a committed stream, which is started again
    REMAKE = auto()  # deletes the topic that nothing else sends to, makes it again, and sends to it
    DENY = auto()  # takes from the user of all clients the right to publish to a topic (`up`), to read it, or both
    CHANGE_SECRET = auto()  # gives that user another secret at one broker, or at all (`both`), and the old one again


RESETS: Final = (Kind.SKIP, Kind.REPLAY)
KILLS: Final = (Kind.KILL, Kind.CUT_POWER, Kind.PROMOTE, Kind.UPGRADE)
# Of a cluster of two NameServers and two pairs of master and slave.
OF_PAIRS: Final = (Kind.KILL_NAMESERVER, Kind.PAUSE_NAMESERVER, Kind.KILL_SLAVE, Kind.PROMOTE)
# Of brokers of ours as processes.
OF_OURS: Final = (Kind.CUT_POWER, Kind.FILL_DISK, Kind.STEP_CLOCK)
# Changes of topics by an administrator, of brokers of any make as processes.
OF_TOPICS: Final = (Kind.READ_ONLY, Kind.WRITE_ONLY, Kind.RESIZE, Kind.REMAKE)
# Of brokers with access control.
OF_ACCESS: Final = (Kind.DENY, Kind.CHANGE_SECRET)
# Of a committed stream.
OF_STREAMS: Final = (Kind.KILL_DRIVER,)
# Of brokers of a release before, which are upgraded.
OF_RELEASES: Final = (Kind.UPGRADE,)
OF_SOME: Final = (*OF_PAIRS, *OF_OURS, *OF_TOPICS, *OF_ACCESS, *OF_STREAMS, *OF_RELEASES)
EVERY_KIND: Final = tuple(kind for kind in Kind if kind not in (Kind.GROW, *OF_SOME))
WEIGHTS: Final = {
    Kind.JOIN: 3,
    Kind.LEAVE: 2,
    Kind.BURST: 2,
    Kind.PAUSE: 2,
    Kind.UPGRADE: 4,
    Kind.DENY: 3,
    Kind.CHANGE_SECRET: 2,
}
TARGETS: Final[Mapping[Kind, Sequence[str]]] = {
    **dict.fromkeys((*RESETS, Kind.BURST, Kind.GROW, Kind.RESIZE, Kind.DENY), TOPICS),
    **dict.fromkeys((Kind.KILL_NAMESERVER, Kind.PAUSE_NAMESERVER), NAMESERVERS),
    Kind.KILL_SLAVE: SLAVES,
    **dict.fromkeys((Kind.CUT_POWER, Kind.PROMOTE), SAFE),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, to a server or a topic, and the time until the next."""

    kind: Kind
    target: str
    seconds: float
    way: str
    gap_seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a run."""

    seed: int
    steps: tuple[Step, ...]


def drawn(seed: int, steps: int, kinds: Sequence[Kind] = EVERY_KIND) -> Plan:
    """Returns the plan of the seed: the same for the same arguments."""
    draw = random.Random(seed)
    weights = [WEIGHTS.get(kind, 1) for kind in kinds]
    plan: list[Step] = []
    for _ in range(steps):
        (kind,) = draw.choices(kinds, weights)
        if kind in KILLS and any(step.kind in RESETS for step in plan[-STEPS_BETWEEN_RESET_AND_KILL:]):
            kind = Kind.CUT if Kind.CUT in kinds else Kind.JOIN
        plan.append(_step(draw, kind))
    return Plan(seed, tuple(plan))


def _step(draw: random.Random, kind: Kind) -> Step:
    seconds = draw.choice(PAUSES if kind is Kind.PAUSE else STALLS)
    target = draw.choice(TARGETS.get(kind, BROKERS))
    return Step(kind, target, seconds, draw.choice(("up", "down", "both")), draw.uniform(0.1, LONGEST_GAP_SECONDS))
