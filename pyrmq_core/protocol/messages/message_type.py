"""The type of a message, found in its properties string: normal, delayed, half of a transaction, a reply.

Sources: client/impl/producer/DefaultMQProducerImpl.java (sendKernelImpl), common/message/MessageType.java,
client/impl/MQClientAPIImpl.java (the code of a reply).
"""

from __future__ import annotations

import enum
from typing import Final


class MessageType(enum.Enum):
    """The type of a message; the value is Java's ordinal, which stands in trace records."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


HALF: Final = "TRAN_MSG\x01true\x02"
REPLY: Final = "MSG_TYPE\x01reply\x02"
DELAY_LEVEL: Final = "DELAY\x01"
# Brokers of 5.0 or later honour these; older ones deliver at once.
TIMERS: Final = ("TIMER_DELIVER_MS\x01", "TIMER_DELAY_MS\x01", "TIMER_DELAY_SEC\x01")


def message_type(properties: str) -> MessageType:
    """Returns the type that the properties string of a request gives its message."""
    if has_property(properties, HALF):
        return MessageType.TRANSACTION_HALF
    if has_property(properties, DELAY_LEVEL) or has_timer(properties):
        return MessageType.DELAY
    return MessageType.NORMAL


def has_timer(properties: str) -> bool:
    """Returns whether the message has a delivery time of its own."""
    return "TIMER_D" in properties and any(has_property(properties, start) for start in TIMERS)


def is_reply(properties: str) -> bool:
    """Returns whether the message is the reply to a request: brokers push it to one client and do not store it."""
    return REPLY in properties and has_property(properties, REPLY)


def has_property(properties: str, start: str) -> bool:
    """Returns whether a pair of the string begins with `start`; a name that only ends with it does not count."""
    found = properties.find(start)
    while found > 0 and properties[found - 1] != "\x02":
        found = properties.find(start, found + 1)
    return found >= 0
