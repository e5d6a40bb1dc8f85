"""Encodes a producer's messages as payloads: ids, compression, limits, and the producer's own properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.hook_calls import methods_of, quietly
from pyrmq_core.client.producer.batch_member import BatchMember, batch_member
from pyrmq_core.client.unique_ids import unique_id, unique_ids
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import NO_PROPERTIES, Message
from pyrmq_core.protocol.messages.batch_payloads import CheckedBatch, checked_batch, split_checked
from pyrmq_core.protocol.messages.batch_topic import MAX_RECORD_MESSAGES
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from pyrmq_core.protocol.messages.properties import INSTANCE_ID
from pyrmq_core.protocol.shown_values import shown

# Requests near 1 MiB keep a broker busiest. Larger requests bring no more throughput.
BATCH_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MessageEncoder:
    """The encoder of one producer's messages, with its settings. `own_properties` are added to every message.

    `created` calls the `hooks` with a message in the caller's thread and context, and returns the message to send.
    Messages with bodies below `joined_below_bytes` may share a request. Without automatic batching this is 0.
    """

    compress_over_bytes: int
    compression: CompressionType | None
    max_message_bytes: int
    own_properties: Mapping[str, str]
    hooks: tuple[Callable[..., object], ...] = ()
    joined_below_bytes: int = 0

    @classmethod
    def of(
        cls,
        compress_over_bytes: int,
        compression: str,
        max_message_bytes: int,
        namespace: str | None,
        hooks: Sequence[object] = (),
        max_batch_bytes: int = 0,
    ) -> MessageEncoder:
        own = {INSTANCE_ID: namespace} if namespace else NO_PROPERTIES
        created, kind = methods_of(hooks, "message_created"), compression_type(compression)
        below = max_batch_bytes if kind is None else min(max_batch_bytes, compress_over_bytes)
        return cls(compress_over_bytes, kind, max_message_bytes, own, created, below)

    def one(self, message: Message, system_properties: Mapping[str, str] = NO_PROPERTIES) -> Payload:
        own = self.own_properties
        if system_properties:
            own = {**own, **system_properties}
        # Passes arguments by position: by keyword, each message would take longer.
        return encode_one(message, unique_id(), self.compress_over_bytes, self.compression, self.max_message_bytes, own)

    def content(self, message: Message, timeout: float | None = None) -> BatchMember | Payload:
        """Returns a `BatchMember` for a message that may share a request, else an encoded `Payload`.

        A `BatchMember` gets its id when the shared request is sent. With `timeout` the result is a `Payload`, because a
        shared request has the producer's timeout.
        """
        if timeout is not None or not self.joined_below_bytes:
            return self.one(message)
        own = self.own_properties
        if (member := batch_member(message, self.joined_below_bytes, self.max_message_bytes, own)) is not None:
            return member
        return encode_one(message, unique_id(), self.compress_over_bytes, self.compression, self.max_message_bytes, own)

    def created(self, message: Message) -> Message:
        for hook in self.hooks:
            changed = quietly(hook, message)
            message = changed if isinstance(changed, Message) else message
        return message

    def checked(self, messages: Sequence[Message]) -> CheckedBatch:
        return checked_batch(messages, self.max_message_bytes)

    def batch(self, batch: CheckedBatch, *, split_by_tag: bool = False) -> Iterator[Payload]:
        """Encodes messages of one topic in large payloads, with `split_by_tag` each with messages of one tag."""
        return split_checked(
            batch,
            unique_ids(len(batch.messages)),
            max_message_bytes=self.max_message_bytes,
            request_bytes=BATCH_BYTES,
            request_messages=MAX_RECORD_MESSAGES,
            split_by_tag=split_by_tag,
        )


def compression_type(name: str) -> CompressionType | None:
    """Returns the compression with this lower-case name, or None for `none`.

    Raises `InvalidArgument` for an unknown name, and `MissingLibrary` if its library is not installed.
    """
    types = {kind.name.lower(): kind for kind in CompressionType}
    if name != "none" and name not in types:
        raise InvalidArgument(f"compression={shown(name)}: none, {', '.join(sorted(types))} are possible")
    kind = types.get(name)
    if kind is not None:
        kind.check_library()
    return kind
