"""The checks of its master that a slave makes before it copies the master's log.

A master that lost the end of its log in a power cut, or is another broker with the same name, has other bytes than the
slave. The replication protocol does not show that. So the slave queries the bounds of the master's log, and compares
its last message with the master's at the same offset.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.servers.broker.store.message_store import MessageStore

Ask = Callable[[Command], Awaitable[Command]]


class CannotFollow(Exception):
    """Raised if a slave cannot follow its master. The text is the reason and the remedy."""


async def check_master(ask: Ask, store: MessageStore, address: str) -> None:
    """Raises `CannotFollow` if this store's log is not the beginning of the master's log.

    `ask` sends a request to the master. If the master refuses it, for example by access control, nothing is checked.
    """
    bounds = log_bounds(await ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO)))
    if bounds is None or not store.end:
        return
    start, end = bounds
    if store.end > end:
        raise CannotFollow(
            f"this store ends at {store.end}, and the log of the master at {address} at {end}: it lost its end, or is "
            "another one. Nothing is cut: make this broker the master, or start it with an empty store"
        )
    if store.end < start:
        raise CannotFollow(
            f"this store ends at {store.end}, and the log of the master at {address} begins at {start}: what lies "
            "between was removed there. Start this broker with an empty store"
        )
    offset = store.reader.last_message()
    if offset is not None and offset >= start:
        await _check_message(ask, store, address, offset)


async def _check_message(ask: Ask, store: MessageStore, address: str, offset: int) -> None:
    record = store.reader.record(offset)
    if record is None:
        return
    answer = await ask(Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}))
    if answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR) and bytes(answer.body) != record:
        raise CannotFollow(
            f"the message at {offset} of this store's log is not in the log of the master at {address}: it lost its "
            "end, or is another one. Nothing is cut: make this broker the master, or start it with an empty store"
        )


def log_bounds(answer: Command) -> tuple[int, int] | None:
    """Returns the first and the end offset of the log in a master's answer, or None if the answer lacks them."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        table = load_object(answer.body, "runtime figures")["table"]
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
    except (BodyError, KeyError, TypeError, ValueError):
        return None
