"""The strategies that look at the machine rooms in which brokers and members stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from pyrmq_core.client.arguments import text_of, tuple_of
from pyrmq_core.client.consumer.rebalance.java_order import sort_client_ids
from pyrmq_core.client.consumer.rebalance.strategy import AllocateMessageQueueStrategy, check_lists
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageQueue

T = TypeVar("T")


class AllocateMessageQueueByMachineRoom:
    """The queues of some machine rooms, shared evenly (AllocateMessageQueueByMachineRoom.java).

    Brokers are named `room@name`. Queues of brokers in other rooms, or with other names, are read by no member.
    """

    __slots__ = ("rooms",)

    def __init__(self, rooms: Iterable[str]) -> None:
        if isinstance(rooms, str):
            raise InvalidArgument(f"rooms={rooms!r}: it is a list of rooms, such as [{rooms!r}]")
        self.rooms = frozenset(text_of("one of rooms", room) for room in tuple_of("rooms", rooms, "names"))

    def __repr__(self) -> str:
        return f"AllocateMessageQueueByMachineRoom({sorted(self.rooms)!r})"

    @property
    def name(self) -> str:
        """The name of the strategy in Java's logs and tools."""
        return "MACHINE_ROOM"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns neighbouring queues of these rooms, and one of those at the end that did not come out even."""
        check_lists(client_id, queues, client_ids)
        if client_id not in client_ids:
            return ()
        ours = [queue for queue in queues if _room_of(queue.broker_name) in self.rooms]
        size, more = divmod(len(ours), len(client_ids))
        index = client_ids.index(client_id)
        last = len(ours) - more + index
        return tuple(ours[index * size : (index + 1) * size] + (ours[last : last + 1] if index < more else []))


def _room_of(broker_name: str) -> str | None:
    """Returns `room` of `room@name`; empty parts at the end do not count, as in Java's `split`."""
    parts = broker_name.split("@")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


class MachineRoomResolver(Protocol):
    """Your knowledge of the rooms (AllocateMachineRoomNearby.MachineRoomResolver); no room may be empty."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        """Returns the room of the queue's broker."""
        ...

    def consumer_deploy_in(self, client_id: str) -> str:
        """Returns the room of a member, from its client id."""
        ...


class AllocateMachineRoomNearby:
    """Queues for the members in their own room (AllocateMachineRoomNearby.java).

    Another strategy allocates within each room. Queues in a room without members are shared by all.
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
        """The name of the strategy, which includes that of the inner one."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the member's queues in its own room, then its share of the rooms without members."""
        check_lists(client_id, queues, client_ids)
        if client_id not in client_ids:
            return ()
        queues_in = _by_room(queues, self.resolver.broker_deploy_in)
        members_in = _by_room(client_ids, self.resolver.consumer_deploy_in)
        own = next(room for room, members in members_in.items() if client_id in members)
        found: list[MessageQueue] = []
        if own in queues_in:
            found += self.strategy.allocate(group, client_id, queues_in[own], members_in[own])
        for room in sort_client_ids(queues_in.keys() - members_in.keys()):
            found += self.strategy.allocate(group, client_id, queues_in[room], client_ids)
        return tuple(found)


def _by_room(things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for thing in things:
        room = text_of(f"the machine room of {thing}", room_of(thing))
        if not room:
            raise InvalidArgument(f"the machine room of {thing} is empty: the resolver has to name one")
        found.setdefault(room, []).append(thing)
    return found
