"""The changes of the route tables as values, such as a broker that registered. Each is logged as one line."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias


class RemovalReason(enum.Enum):
    """The reason for which a broker's address was removed from the tables."""

    UNREGISTERED = "it unregistered"
    CONNECTION_CLOSED = "its connection closed"
    SILENT = "it was silent for too long"


@dataclass(frozen=True, slots=True)
class BrokerJoined:
    """A broker's address that registered for the first time, or again after its removal."""

    broker_name: str
    broker_id: int
    address: str
    cluster: str
    ha_server_addr: str | None

    def __str__(self) -> str:
        return (
            f"new broker {self.broker_name}, id {self.broker_id}, {self.address}, cluster {self.cluster}, "
            f"HA {self.ha_server_addr}"
        )


@dataclass(frozen=True, slots=True)
class AddressMoved:
    """An address that registered with another id of its broker name, as when a slave becomes the master."""

    broker_name: str
    address: str
    old_id: int
    new_id: int

    def __str__(self) -> str:
        return f"{self.address} of broker {self.broker_name} moved from id {self.old_id} to {self.new_id}"


@dataclass(frozen=True, slots=True)
class PlaceTaken:
    """An address that replaced the address `holder` of a living broker with the same name and id."""

    broker_name: str
    broker_id: int
    address: str
    holder: str

    def __str__(self) -> str:
        return (
            f"{self.address} takes the place of {self.holder} as {self.broker_name}, id {self.broker_id}, which is "
            "alive: give each broker a brokerId of its own"
        )


@dataclass(frozen=True, slots=True)
class RegistrationIgnored:
    """A registration that was ignored, since another address has the same id and a higher state version."""

    broker_name: str
    broker_id: int
    address: str
    holder: str

    def __str__(self) -> str:
        return (
            f"registration of {self.address} as {self.broker_name}, id {self.broker_id}, ignored: {self.holder} "
            "holds this id with a later state"
        )


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    """A broker's first registration that was refused since it has a single topic.

    It is refused only if the setting `acceptFirstRegistrationOfOneTopic` is false.
    """

    broker_name: str
    broker_id: int
    address: str

    def __str__(self) -> str:
        return (
            f"registration of {self.address} as {self.broker_name}, id {self.broker_id}, refused: its first one has a "
            "single topic; a broker registers all its topics first"
        )


@dataclass(frozen=True, slots=True)
class TopicsTaken:
    """The numbers of topics that a broker's registration added (`new`) and changed."""

    broker_name: str
    new: int
    changed: int

    def __str__(self) -> str:
        return f"broker {self.broker_name}: {self.new} topics new, {self.changed} changed"


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """A broker's address that was removed from the tables."""

    broker_name: str | None
    broker_id: int | None
    address: str
    cluster: str
    reason: RemovalReason

    def __str__(self) -> str:
        named = "an address of no broker" if self.broker_name is None else f"{self.broker_name}, id {self.broker_id}"
        return f"removed broker {named}, {self.address}, cluster {self.cluster}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class BrokerNameRemoved:
    """A broker name that lost its last address."""

    broker_name: str

    def __str__(self) -> str:
        return f"removed broker name {self.broker_name}: no address is left"


@dataclass(frozen=True, slots=True)
class ClusterRemoved:
    """A cluster that lost its last broker name."""

    cluster: str

    def __str__(self) -> str:
        return f"removed cluster {self.cluster}: no broker is left"


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """A topic that lost its last queues."""

    topic: str

    def __str__(self) -> str:
        return f"removed topic {self.topic}: no broker has it any more"


@dataclass(frozen=True, slots=True)
class TopicsRemoved:
    """The topics that lost their last queues when brokers were removed. `each` yields a `TopicRemoved` for each."""

    topics: tuple[str, ...]

    def __str__(self) -> str:
        return f"removed {len(self.topics)} topics in all: no broker has them any more"

    def each(self, start: int = 0, end: int | None = None) -> Iterator[TopicRemoved]:
        return map(TopicRemoved, self.topics[start:end])


@dataclass(frozen=True, slots=True)
class QueuesRemoved:
    """A topic that lost one broker's queues."""

    topic: str
    broker_name: str

    def __str__(self) -> str:
        return f"removed the queues of topic {self.topic} at broker {self.broker_name}"


@dataclass(frozen=True, slots=True)
class WriteSwitched:
    """The write permission of a broker's topics, switched on (`writable`) or off. `topics` is their number."""

    broker_name: str
    writable: bool
    topics: int
    reason: str

    def __str__(self) -> str:
        switch = "on" if self.writable else "off"
        return f"write permission of {self.topics} topics of broker {self.broker_name} switched {switch}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TopicSet:
    """The result of request 217, which sets a topic's queues. `unknown` is the first unregistered broker, or None."""

    topic: str
    brokers: tuple[str, ...]
    unknown: str | None

    def __str__(self) -> str:
        ending = "" if self.unknown is None else f"; ended at broker {self.unknown}, which is unknown"
        return f"queues of topic {self.topic} set for brokers {', '.join(self.brokers) or 'none'}{ending}"


Change: TypeAlias = (
    BrokerJoined
    | AddressMoved
    | PlaceTaken
    | RegistrationIgnored
    | RegistrationRefused
    | TopicsTaken
    | BrokerRemoved
    | BrokerNameRemoved
    | ClusterRemoved
    | TopicRemoved
    | TopicsRemoved
    | QueuesRemoved
    | WriteSwitched
    | TopicSet
)


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """A new smallest id of a broker name. `targets` are the addresses to notify.

    `offline_address` is the address of a broker that left, `ha_server_addr` the address for slaves of one that joined.
    """

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    targets: tuple[str, ...]
    offline_address: str | None = None
    ha_server_addr: str | None = None


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """The result of a registration. The answer is an error unless `accepted`.

    `master_addr` and `ha_server_addr` are the master's addresses, for the answer to a slave. `notice` is to be sent.
    """

    accepted: bool
    changes: tuple[Change, ...]
    master_addr: str | None = None
    ha_server_addr: str | None = None
    notice: MinBrokerIdChange | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of removing brokers: the changes, the notices to send, and the connections to close.

    Only the connections of brokers that were silent for too long are closed.
    """

    changes: tuple[Change, ...] = ()
    notices: tuple[MinBrokerIdChange, ...] = ()
    connections: Sequence[object] = ()
