"""The exceptions with which a handler decides about messages that it did not consume.

Sources: client/consumer/listener/ConsumeConcurrentlyContext.java, ConsumeOrderlyContext.java, 5.4.0.
"""

from __future__ import annotations

from pyrmq_core.client.arguments import seconds_of, whole_number

# Levels 1 to 18 of messageDelayLevel, 0 for the broker's choice, -1 for the dead letters.
LEAST_DELAY_LEVEL = -1
MOST_DELAY_LEVEL = 18
# The delay level for the retry of a message whose handler timed out (ConsumeMessageConcurrentlyService.java,
# cleanExpiredMsg).
TIMEOUT_DELAY_LEVEL = 3


class ConsumeLater(Exception):
    """Raised by a handler, so that the messages are delivered again after the delay of `delay_level`.

    With level 0 the delay grows with the number of tries (10 s, 30 s, 1 min, ...). With -1 the messages move to the
    group's dead-letter topic at once. In a batch, the messages up to index `ack_index` are acknowledged (-1: none).
    """

    def __init__(self, delay_level: int = 0, *, ack_index: int = -1) -> None:
        self.delay_level = whole_number("delay_level", delay_level, LEAST_DELAY_LEVEL, MOST_DELAY_LEVEL)
        self.ack_index = whole_number("ack_index", ack_index, -1)
        super().__init__(f"consume later (delay_level={delay_level}, ack_index={ack_index})")


class SuspendCurrentQueue(Exception):
    """Raised by an orderly handler, so that the same messages come again after `seconds`, before any later message.

    The default is the consumer's `suspend_current_queue_time`. 0.01 to 30 s are allowed, as in Java.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = None if seconds is None else seconds_of("seconds", seconds)
        super().__init__("suspend the current queue" + ("" if seconds is None else f" for {seconds:g} s"))


class NotHandled(Exception):
    """Raised inside the library when no handler got the messages. They are neither acknowledged nor sent back."""
