"""`Replicas`: the slaves that follow this master, and the sends that wait for copies at enough slaves."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.servers.broker.settings.broker_config import SYNC_MASTER, BrokerConfig

MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class CopyRules:
    """The rules by which a send waits for slaves: `copies` brokers, the master included, must have its message.

    A send waits at most `timeout` seconds. A slave that lags by `most_gap` bytes is not in sync. With `needs_slaves`,
    as in RocketMQ 4.9, a send does not wait for slaves if too few are in sync: the answer is SLAVE_NOT_AVAILABLE.
    """

    copies: int = 1
    timeout: float = 3.0
    most_gap: int = 256 << 20
    needs_slaves: bool = False

    @classmethod
    def of(cls, config: BrokerConfig) -> CopyRules:
        """Returns RocketMQ 5's rules with a broker's settings, or 4.9's if haSlaveFallbehindMax is set."""
        needs_slaves = config.ha_slave_fallbehind_max >= 0
        copies = max(config.in_sync_replicas, 2 if needs_slaves else 1)
        return cls(
            copies if config.broker_role == SYNC_MASTER else 1,
            config.slave_timeout / MILLISECONDS,
            config.ha_slave_fallbehind_max if needs_slaves else config.ha_max_gap_not_in_sync,
            needs_slaves,
        )


@dataclass(eq=False, slots=True)
class Replica:
    """One slave's connection.

    The master sends the commit log from the offset `first` on, and has sent it up to `sent`. The slave has reported
    that it has the log up to `acknowledged`, which is -1 before the first report. `lags` is True from when the slave
    falls too far behind until it has caught up. `began` is a time of trio's clock.
    """

    address: str
    acknowledged: int = -1
    first: int = 0
    sent: int = 0
    transferred: int = 0  # bytes sent since the connection began
    lags: bool = False
    began: float = field(default_factory=trio.current_time)

    def bytes_per_second(self) -> int:
        return int(self.transferred / max(1.0, trio.current_time() - self.began))


class Replicas:
    """The connected slaves of a master. `rules` may change at any time."""

    def __init__(self, rules: CopyRules) -> None:
        self._rules = rules
        self.connected: dict[Replica, None] = {}
        # The waiting sends: a log offset that enough slaves must reach, ascending, and a number that orders equal ones.
        self._waiting: list[tuple[int, int, trio.Event]] = []
        self._numbers = itertools.count()

    @property
    def rules(self) -> CopyRules:
        return self._rules

    @rules.setter
    def rules(self, rules: CopyRules) -> None:
        self._rules = rules
        self._wake()

    def join(self, address: str) -> Replica:
        replica = Replica(address)
        self.connected[replica] = None
        return replica

    def leave(self, replica: Replica) -> None:
        self.connected.pop(replica, None)

    def acknowledge(self, replica: Replica, offset: int) -> None:
        """Stores the offset up to which a slave has the log, and wakes the sends that enough slaves now have."""
        replica.acknowledged = max(replica.acknowledged, offset)
        self._wake()

    def is_copied(self, end: int) -> bool:
        return sum([slave.acknowledged >= end for slave in self.connected]) >= self.rules.copies - 1

    def in_sync(self, log_end: int) -> list[Replica]:
        most_gap = self.rules.most_gap
        return [
            slave for slave in self.connected if slave.acknowledged >= 0 and log_end - slave.acknowledged < most_gap
        ]

    def can_copy(self, end: int) -> bool:
        """Returns False if the rules need slaves in sync, and too few are, for a log that ends at `end`."""
        return not self.rules.needs_slaves or len(self.in_sync(end)) >= self.rules.copies - 1

    async def wait(self, end: int, deadline: float) -> bool:
        """Waits until enough slaves have the log up to `end`. Returns False at the time `deadline` of trio's clock."""
        if self.is_copied(end):
            return True
        waiting = (end, next(self._numbers), trio.Event())
        insort(self._waiting, waiting)
        try:
            with trio.move_on_at(deadline):
                await waiting[2].wait()
        finally:
            index = bisect_left(self._waiting, waiting[:2], key=lambda entry: entry[:2])
            if self._waiting[index : index + 1] == [waiting]:
                del self._waiting[index]
        return waiting[2].is_set()

    def _wake(self) -> None:
        ended = 0
        for end, _, copied in self._waiting:
            if not self.is_copied(end):
                break
            copied.set()
            ended += 1
        del self._waiting[:ended]
