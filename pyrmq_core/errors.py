"""Every error that pyrmq raises, in one tree. Each class answers "what broke, and may I retry?".

    RocketMQError
    ├── LocalError                  you broke a rule: nothing left this process
    │   ├── InvalidArgument         an argument, option or setting that RocketMQ does not accept
    │   │   └── InvalidMessage      a message that breaks RocketMQ's rules (Validators.java)
    │   ├── InvalidState            the client, producer or consumer is not running
    │   ├── MissingLibrary          an optional library is needed and not installed
    │   ├── SendForbidden           a check-forbidden hook of yours refused the message
    │   └── WindowFull              too much is in flight, and the call was one that does not wait
    ├── RoutingError                no server to send to or read from
    │   ├── NoNameServer            no NameServer is named, or none can be reached
    │   ├── NoRoute                 no NameServer knows a route of the topic
    │   └── BrokerNotFound          the route names no address for the broker
    ├── PeerError                   the peer did something wrong or refused
    │   ├── ResponseError           it answered with a code other than success
    │   └── ProtocolError           it sent bytes that are not RocketMQ's
    │       ├── FrameError          lengths or serialization type of a frame
    │       ├── HeaderError         the header of a frame, or a field missing in it
    │       ├── BodyError           a body: route, registration, batch, ...
    │       └── RecordError         a stored message
    │           ├── BodyDamaged     its body does not have the CRC in its record
    │           └── BodyTooLarge    its body, decompressed, or all bodies of one answer exceed a limit
    ├── NetworkError                the connection failed: `request_left` says if the peer may have the request
    │   ├── ConnectFailed
    │   ├── ConnectionClosed
    │   └── CallTimeout
    ├── RequestTimeout              a request message is stored, and no reply arrived in time
    ├── DataLost                    requested messages are no longer there
    ├── ManifestError               the manifest of committed writes cannot be read
    ├── StoreError                  the broker's own files cannot be read or written
    └── SendFailed                  a send failed: `outcome` is its result at the broker, `attempts` its tries
        ├── BatchFailed             some parts of a divided batch failed: `parts` has each part's results or error
        └── QueueNotFound           the broker does not have the queue that the caller named

Facts are attributes. The text is one line that ends with the remedy. `condition` is a stable word to search for.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyrmq_core.model import MessageQueue, SendResult


class Outcome(enum.Enum):
    """The state of a message at the broker after a failed send, as in librdkafka's INTRODUCTION.md."""

    NOT_STORED = "not stored"
    PERHAPS_STORED = "perhaps stored"
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send: its broker, its duration in seconds, its outcome and the reason."""

    broker_name: str
    address: str
    seconds: float
    outcome: Outcome
    reason: str

    def __str__(self) -> str:
        where = f"{self.broker_name} ({self.address})" if self.address else self.broker_name
        return f"{where} after {self.seconds:.2f} s: {self.reason} [{self.outcome.value}]"


class RocketMQError(Exception):
    """The root of all errors of this library."""

    condition: ClassVar[str] = "RMQ_ERROR"
    outcome: Outcome = Outcome.NOT_STORED
    attempts: tuple[Attempt, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps the error's attributes in copies and pickles. Exception's own `__reduce__` drops keyword arguments."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[RocketMQError], args: tuple[object, ...], facts: dict[str, object]) -> RocketMQError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class LocalError(RocketMQError):
    """The caller broke a rule. Nothing was sent."""

    condition = "RMQ_LOCAL"


class InvalidArgument(LocalError, ValueError):
    """An argument, option or setting that RocketMQ does not accept."""

    condition = "RMQ_INVALID_ARGUMENT"


class InvalidMessage(InvalidArgument):
    """A message that breaks RocketMQ's rules (client/Validators.java)."""

    condition = "RMQ_INVALID_MESSAGE"


class InvalidState(LocalError):
    """The client, producer or consumer is not running."""

    condition = "RMQ_INVALID_STATE"


class MissingLibrary(LocalError, ImportError):
    """An optional library is needed and not installed."""

    condition = "RMQ_MISSING_LIBRARY"


class SendForbidden(LocalError):
    """A check-forbidden hook, a function of the user, refused the message. Nothing was sent."""

    condition = "RMQ_SEND_FORBIDDEN"


class WindowFull(LocalError):
    """Too many sends are under way, and the call does not wait for room."""

    condition = "RMQ_WINDOW_FULL"


class RoutingError(RocketMQError):
    """There is no server to send to or read from."""

    condition = "RMQ_ROUTING"


class NoNameServer(RoutingError):
    """No NameServer is named, or no named NameServer can be reached."""

    condition = "RMQ_NO_NAME_SERVER"


class NoRoute(RoutingError):
    """No NameServer knows a route of the topic."""

    condition = "RMQ_TOPIC_NOT_FOUND"

    def __init__(self, text: str, *, topic: str) -> None:
        super().__init__(text)
        self.topic = topic


class BrokerNotFound(RoutingError):
    """The route names no address for the broker."""

    condition = "RMQ_BROKER_NOT_FOUND"

    def __init__(self, text: str, *, broker_name: str) -> None:
        super().__init__(text)
        self.broker_name = broker_name


class PeerError(RocketMQError):
    """The peer did something wrong, or refused."""

    condition = "RMQ_PEER"


class ResponseError(PeerError):
    """The peer answered with a code other than success."""

    condition = "RMQ_REFUSED"

    def __init__(self, text: str, *, code: int, remark: str = "", address: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.remark = remark
        self.address = address


class ProtocolError(PeerError):
    """The peer sent bytes that are not RocketMQ's."""

    condition = "RMQ_PROTOCOL"


class FrameError(ProtocolError):
    """A received frame has impossible lengths, or an unknown serialization type."""


class HeaderError(ProtocolError):
    """A received frame's header cannot be read, or lacks a required field."""


class BodyError(ProtocolError):
    """A received body (route, registration, batch, ...) cannot be read."""


class RecordError(ProtocolError):
    """A stored message cannot be read."""

    condition = "RMQ_BAD_RECORD"


class BodyDamaged(RecordError):
    """A message whose body does not have the CRC in its record: it changed after the broker received it."""

    condition = "RMQ_BODY_DAMAGED"

    def __init__(self, text: str, *, queue: MessageQueue, offset: int, address: str) -> None:
        super().__init__(text)
        self.queue = queue
        self.offset = offset
        self.address = address


class BodyTooLarge(RecordError):
    """A body, or several bodies together, would exceed `max_bytes` when decompressed.

    `queue` and `offset` say where reading stopped, if that is known.
    """

    condition = "RMQ_BODY_TOO_LARGE"

    def __init__(
        self, text: str, *, max_bytes: int, queue: MessageQueue | None = None, offset: int | None = None
    ) -> None:
        super().__init__(text)
        self.max_bytes = max_bytes
        self.queue = queue
        self.offset = offset


class NetworkError(RocketMQError):
    """The connection failed. `request_left` is True if a part of the request may have reached the peer."""

    condition = "RMQ_NETWORK"

    def __init__(self, text: str, *, address: str, request_left: bool) -> None:
        super().__init__(text)
        self.address = address
        self.request_left = request_left


class ConnectFailed(NetworkError):
    """No connection could be opened in time. Nothing was sent."""

    condition = "RMQ_CONNECT_FAILED"

    def __init__(self, text: str, *, address: str) -> None:
        super().__init__(text, address=address, request_left=False)


class ConnectionClosed(NetworkError):
    """The connection ended before the answer arrived."""

    condition = "RMQ_CONNECTION_CLOSED"


class CallTimeout(NetworkError):
    """No answer arrived in time."""

    condition = "RMQ_TIMEOUT"


class RequestTimeout(RocketMQError):
    """A request message is stored, but no reply arrived in time (RequestTimeoutException.java, code 10006)."""

    condition = "RMQ_REQUEST_TIMEOUT"
    outcome = Outcome.STORED


class DataLost(RocketMQError):
    """Requested messages, from offset `start` to before `end`, are no longer there.

    The queue keeps the offsets from `min_offset` to before `max_offset`.
    """

    condition = "RMQ_DATA_LOSS"

    def __init__(
        self, text: str, *, queue: MessageQueue, start: int, end: int, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(text)
        self.queue = queue
        self.start = start
        self.end = end
        self.min_offset = min_offset
        self.max_offset = max_offset


class ManifestError(RocketMQError):
    """The topic in which committed writes record their batches (the manifest) cannot be used.

    It has several queues, too many ranges, or a faulty record.
    """

    condition = "RMQ_MANIFEST"


class StoreError(RocketMQError):
    """The broker's own files cannot be read or written."""

    condition = "RMQ_STORE"


class SendFailed(RocketMQError):
    """A failed send. `outcome` is its result at the broker, `attempts` its tries in order."""

    condition = "RMQ_SEND_FAILED"

    def __init__(self, text: str, *, outcome: Outcome, attempts: Sequence[Attempt]) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.attempts = tuple(attempts)


class StoredRows(Protocol):
    """The rows that a failed `send_arrow` has stored, by queue. The class `WriteSummary` fits this protocol."""

    @property
    def messages(self) -> int: ...

    @property
    def messages_by_queue(self) -> Mapping[MessageQueue, int]: ...


BatchPart: TypeAlias = "Sequence[SendResult] | StoredRows | RocketMQError"


class BatchFailed(SendFailed):
    """Some parts of a divided batch failed. `parts` has, in order, each part's results or its error.

    After a failed `send_arrow`, `parts` has two elements: a summary of the stored rows, and the error.
    """

    condition = "RMQ_BATCH_FAILED"

    def __init__(self, text: str, *, outcome: Outcome, attempts: Sequence[Attempt], parts: Sequence[BatchPart]) -> None:
        super().__init__(text, outcome=outcome, attempts=attempts)
        self.parts: tuple[BatchPart, ...] = tuple(parts)


class QueueNotFound(SendFailed):
    """The broker does not have the queue that the caller named. Nothing is stored."""

    condition = "RMQ_QUEUE_NOT_FOUND"

    def __init__(self, text: str, *, outcome: Outcome, attempts: Sequence[Attempt], queue: MessageQueue) -> None:
        super().__init__(text, outcome=outcome, attempts=attempts)
        self.queue = queue
