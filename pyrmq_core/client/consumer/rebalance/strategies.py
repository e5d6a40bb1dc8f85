"""The allocation strategies: the rules by which the members of a group share a topic's queues. Pure.

Every member sorts queues and members before it allocates. A member with another order would take queues of others and
leave some unread. The order is that of Java (MessageQueue.compareTo, String.compareTo), which compares UTF-16 units.
Upper case sorts before lower case, and `b-10` before `b-2`. Characters above U+FFFF sort before U+E000, since they are
two surrogates in UTF-16.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import ClassVar, Final, Protocol, TypeVar

from pyrmq_core.client.arguments import queue_of, text_of, tuple_of, whole_number
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageQueue


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    return sorted(queues, key=lambda queue: (utf16(queue.topic), utf16(queue.broker_name), queue.queue_id))


def sort_client_ids(client_ids: Iterable[str]) -> list[str]:
    return sorted(client_ids, key=utf16)


def utf16(text: str) -> bytes:
    """Returns bytes that sort as Java sorts the string, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


class AllocateMessageQueueStrategy(Protocol):
    """The rule by which the members of a group share a topic's queues (AllocateMessageQueueStrategy.java).

    Each member computes its own queues. The results fit together only if all members have the same rule, queues and
    client ids.
    """

    @property
    def name(self) -> str:
        """Java's name of the strategy, such as `AVG`."""
        ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the queues that the member `client_id` reads.

        Both lists are sorted in Java's order. A member that is missing in `client_ids` gets no queues, since the broker
        does not know it.
        """
        ...


def check_strategy(strategy: object) -> None:
    if not callable(getattr(strategy, "allocate", None)) or not isinstance(getattr(strategy, "name", None), str):
        raise InvalidArgument(
            f"allocate_message_queue_strategy={strategy!r}: it has a name and a method allocate(group, client_id, "
            "queues, client_ids)"
        )


def is_member(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    """Returns whether `client_id` is one of `client_ids`. Raises `InvalidArgument` for empty arguments."""
    if not client_id:
        raise InvalidArgument("client_id is empty: pass the id of the member whose queues you want")
    if not queues:
        raise InvalidArgument("queues is empty: there is nothing to allocate")
    if not client_ids:
        raise InvalidArgument("client_ids is empty: pass the ids of all members of the group")
    return client_id in client_ids


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely:
    """The default strategy: each member reads a block of neighbouring queues (AllocateMessageQueueAveragely.java)."""

    name: ClassVar[str] = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the member's block of queues. If the division is uneven, the first members get one queue more."""
        if not is_member(client_id, queues, client_ids):
            return ()
        size, more = divmod(len(queues), len(client_ids))
        index = client_ids.index(client_id)
        start = index * size + min(index, more)
        return tuple(queues[start : start + size + (index < more)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle:
    """A strategy that deals queues to members one by one, like cards (AllocateMessageQueueAveragelyByCircle.java)."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the member's queues: every n-th queue, where n is the number of members."""
        if not is_member(client_id, queues, client_ids):
            return ()
        return tuple(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateMessageQueueByConfig:
    """A fixed list of queues, independent of other members (AllocateMessageQueueByConfig.java).

    Queues that are in no member's list are not read. For each topic, the listed queues of that topic are allocated (in
    Java all listed queues). A listed queue is allocated even if the topic does not have it, as in Java.
    """

    __slots__ = ("queues",)
    name: ClassVar[str] = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = tuple(map(queue_of, tuple_of("queues", queues, "MessageQueues")))

    def __repr__(self) -> str:
        return f"AllocateMessageQueueByConfig({list(self.queues)!r})"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the configured queues of the topics in `queues`, whatever the other members are."""
        topics = {queue.topic for queue in queues}
        return tuple(queue for queue in self.queues if queue.topic in topics)


T = TypeVar("T")


class AllocateMessageQueueByMachineRoom:
    """The queues of brokers in the machine rooms `rooms`, shared evenly (AllocateMessageQueueByMachineRoom.java).

    The room is part of a broker's name, `room@name`. Queues of brokers in other rooms, or with other names, are read by
    no member.
    """

    __slots__ = ("rooms",)
    name: ClassVar[str] = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        if isinstance(rooms, str):
            raise InvalidArgument(f"rooms={rooms!r}: it is a list of rooms, such as [{rooms!r}]")
        self.rooms = frozenset(text_of("one of rooms", room) for room in tuple_of("rooms", rooms, "names"))

    def __repr__(self) -> str:
        return f"AllocateMessageQueueByMachineRoom({sorted(self.rooms)!r})"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the member's block of the queues in the machine rooms `rooms`.

        All blocks have the same length. If the division is uneven, the first members get one of the last queues each.
        """
        if not is_member(client_id, queues, client_ids):
            return ()
        ours = [queue for queue in queues if _room_of(queue.broker_name) in self.rooms]
        size, more = divmod(len(ours), len(client_ids))
        index = client_ids.index(client_id)
        last = len(ours) - more + index
        return tuple(ours[index * size : (index + 1) * size] + (ours[last : last + 1] if index < more else []))


def _room_of(broker_name: str) -> str | None:
    """Returns `room` of `room@name`, else None. Empty parts at the end are ignored, as in Java's `split`."""
    parts = broker_name.split("@")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


class MachineRoomResolver(Protocol):
    """A user's rule for the machine rooms of brokers and consumers (AllocateMachineRoomNearby.MachineRoomResolver)."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        """Returns the room of the queue's broker."""
        ...

    def consumer_deploy_in(self, client_id: str) -> str:
        """Returns the room of the member with this client id."""
        ...


class AllocateMachineRoomNearby:
    """The queues of brokers in each member's own machine room (AllocateMachineRoomNearby.java).

    `strategy` divides the queues within each room. Queues in a room without members are shared by all members.
    """

    __slots__ = ("resolver", "strategy")

    def __init__(self, strategy: AllocateMessageQueueStrategy, resolver: MachineRoomResolver) -> None:
        for name in ("name", "allocate"):
            if not hasattr(strategy, name):
                raise InvalidArgument(f"strategy={strategy!r}: it is a strategy, with `name` and `allocate`")
        for name in ("broker_deploy_in", "consumer_deploy_in"):
            if not callable(getattr(resolver, name, None)):
                raise InvalidArgument(f"resolver={resolver!r}: it has the functions of MachineRoomResolver")
        self.strategy = strategy
        self.resolver = resolver

    def __repr__(self) -> str:
        return f"AllocateMachineRoomNearby({self.strategy!r}, {self.resolver!r})"

    @property
    def name(self) -> str:
        """The name of the strategy, which includes the inner strategy's name."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the member's queues in its own room, then its share of the queues in rooms without members."""
        if not is_member(client_id, queues, client_ids):
            return ()
        queues_in = _by_room(queues, self.resolver.broker_deploy_in)
        members_in = _by_room(client_ids, self.resolver.consumer_deploy_in)
        own = next(room for room, members in members_in.items() if client_id in members)
        allocated: list[MessageQueue] = []
        if own in queues_in:
            allocated += self.strategy.allocate(group, client_id, queues_in[own], members_in[own])
        for room in sort_client_ids(queues_in.keys() - members_in.keys()):
            allocated += self.strategy.allocate(group, client_id, queues_in[room], client_ids)
        return tuple(allocated)


def _by_room(things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = text_of(f"the machine room of {thing}", room_of(thing))
        if not room:
            raise InvalidArgument(f"the machine room of {thing} is empty: the resolver has to name one")
        rooms.setdefault(room, []).append(thing)
    return rooms


MOST_VIRTUAL_NODES: Final = 10_000


def md5_hash(key: str) -> int:
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


class AllocateMessageQueueConsistentHash:
    """Consistent hashing: a queue is read by the next member on a ring (AllocateMessageQueueConsistentHash.java).

    Each member has `virtual_nodes` positions on the ring. With more positions, the division is more even. All members
    need the same number and the same `hash_function`. The default is the function of Java's clients. Go's clients use
    another one, so never use this strategy in a group with them.
    """

    __slots__ = ("hash_function", "virtual_nodes")
    name: ClassVar[str] = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10, hash_function: Callable[[str], int] = md5_hash) -> None:
        if not callable(hash_function):
            raise InvalidArgument(f"hash_function={hash_function!r}: it is a function of a text that returns a number")
        self.virtual_nodes = whole_number("virtual_nodes", virtual_nodes, 1, MOST_VIRTUAL_NODES)
        self.hash_function = hash_function

    def __repr__(self) -> str:
        return f"AllocateMessageQueueConsistentHash({self.virtual_nodes})"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the queues whose next position on the ring is one of the member's positions."""
        if not is_member(client_id, queues, client_ids):
            return ()
        ring = self._ring(client_ids)
        positions = sorted(ring)
        return tuple(queue for queue in queues if ring[self._position(queue, positions)] == client_id)

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Returns the member at each position of the ring. The later of two members with the same position gets it."""
        ring: dict[int, str] = {}
        nodes = Counter[str]()
        for client_id in client_ids:
            first = nodes[client_id]
            for number in range(first, first + self.virtual_nodes):
                position = self.hash_function(f"{client_id}-{number}")
                if position in ring:
                    nodes[ring[position]] -= 1
                ring[position] = client_id
                nodes[client_id] += 1
        return ring

    def _position(self, queue: MessageQueue, positions: Sequence[int]) -> int:
        key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return positions[bisect_left(positions, self.hash_function(key)) % len(positions)]
