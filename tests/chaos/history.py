"""The history of a run: events with their times, which every process of the run writes and the checker reads."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from enum import StrEnum, auto
from typing import TypeAlias, get_args


class Outcome(StrEnum):
    """The end of a send, as its sender knows it."""

    STORED = auto()
    NOT_STORED = auto()
    PERHAPS_STORED = auto()
    ROLLED_BACK = auto()  # by its transaction: it is never consumed


@dataclass(frozen=True, slots=True)
class Booted:
    """A broker of the run, and the release of Apache RocketMQ that it is of; "ours" for one of pyrmq."""

    broker: str
    maker: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A group of the run, which is to consume every message."""

    group: str


@dataclass(frozen=True, slots=True)
class Send:
    """A message that a producer sent, from the call to its end; `id` is its body.

    A delayed one is not consumed before `delay_seconds` after the call. Those of a `key` are sent one after the other.
    """

    began: float
    ended: float
    topic: str
    id: str
    outcome: str
    delay_seconds: float = 0.0
    is_in_transaction: bool = False
    key: str = ""

    @property
    def is_late(self) -> bool:
        """True if it may become readable long after the call."""
        return self.is_in_transaction or self.delay_seconds > 0


@dataclass(frozen=True, slots=True)
class Tried:
    """A failed try of a message's send; one that `is_unsure` may have stored it, and its answer did not come."""

    began: float
    ended: float
    id: str
    broker: str
    is_unsure: bool


@dataclass(frozen=True, slots=True)
class Start:
    """A queue that a member reads from now on, and the offset that it begins at."""

    at: float
    group: str
    member: str
    topic: str
    broker: str
    queue_id: int
    offset: int

    @property
    def queue(self) -> Queue:
        return self.topic, self.broker, self.queue_id


@dataclass(frozen=True, slots=True)
class Got:
    """A message that a handler was called with: it was consumed (`kept`), or given back."""

    at: float
    group: str
    member: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    id: str
    tries: int
    kept: bool

    @property
    def queue(self) -> Queue:
        return self.topic, self.broker, self.queue_id


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign that a member's loop runs, and the processor time that its process had used."""

    at: float
    member: str
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Hung:
    """A member that did not go on: what it did not do, and its stacks."""

    at: float
    member: str
    what: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A step of the plan that was done, from its begin to its end."""

    began: float
    ended: float
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic's deletion, with all messages that were sent to it before."""

    began: float
    ended: float
    topic: str


@dataclass(frozen=True, slots=True)
class Denied:
    """A time in which every broker refused the sends to a topic, from the last change to the first that ended it."""

    began: float
    ended: float
    topic: str


@dataclass(frozen=True, slots=True)
class Reset:
    """A queue's offset that an administrator gave the group; the call returned at `ended`."""

    began: float
    ended: float
    group: str
    topic: str
    broker: str
    queue_id: int
    before: int
    after: int

    @property
    def queue(self) -> Queue:
        return self.topic, self.broker, self.queue_id


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in a queue, read when everything is over."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    id: str

    @property
    def queue(self) -> Queue:
        return self.topic, self.broker, self.queue_id


@dataclass(frozen=True, slots=True)
class Copied:
    """The log of a slave, compared with its master's when everything is over; `wrong` is empty for a copy."""

    slave: str
    log_bytes: int
    wrong: str


@dataclass(frozen=True, slots=True)
class Counted:
    """The rows that a reader of a committed stream has in the end; `wrong` says what it lacks, or has twice."""

    reader: str
    rows: int
    wrong: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The end of the waiting for all messages: how it ended."""

    at: float
    how: str


OURS = "ours"
# How the wait for the last messages ended. A machine that was too slow is no fault.
ALL_CONSUMED, STOOD_STILL, OUT_OF_TIME = "all consumed", "stood still", "out of time"

Queue: TypeAlias = "tuple[str, str, int]"
Event: TypeAlias = (
    Booted | Subscribed | Send | Tried | Start | Got | Beat | Hung | Fault | Deleted | Denied | Reset | Stored
    | Copied | Counted | Settled
)  # fmt: skip
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def line_of(event: Event) -> bytes:
    """Returns the event as a line of JSON."""
    return json.dumps([type(event).__name__, *astuple(event)]).encode() + b"\n"


def event_of(line: bytes) -> Event:
    """Returns the event of a line."""
    name, *fields = json.loads(line)
    return KINDS[name](*fields)
