"""The shape of an allocation strategy, and the checks of its arguments (AbstractAllocateMessageQueueStrategy.java)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageQueue


class AllocateMessageQueueStrategy(Protocol):
    """The rule by which the members of a group share a topic's queues (AllocateMessageQueueStrategy.java).

    Each member computes its own share. The shares fit together if every member has the same rule and the same lists.
    """

    @property
    def name(self) -> str:
        """Java's name of the strategy, such as `AVG`."""
        ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the queues of one member.

        Both lists are sorted in Java's order. A member that is missing in `client_ids` has no queues: the broker does
        not know it yet, or no longer.
        """
        ...


def check_strategy(strategy: object) -> None:
    """Raises `InvalidArgument` for a setting that is no strategy."""
    if not callable(getattr(strategy, "allocate", None)) or not isinstance(getattr(strategy, "name", None), str):
        raise InvalidArgument(
            f"allocate_message_queue_strategy={strategy!r}: it has a name and a method allocate(group, client_id, "
            "queues, client_ids)"
        )


def check_lists(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> None:
    """Raises `InvalidArgument` if one of them is empty."""
    if not client_id:
        raise InvalidArgument("client_id is empty: pass the id of the member whose queues you want")
    if not queues:
        raise InvalidArgument("queues is empty: there is nothing to allocate")
    if not client_ids:
        raise InvalidArgument("client_ids is empty: pass the ids of all members of the group")
