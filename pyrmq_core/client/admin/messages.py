"""`Admin.messages`: look-ups of stored messages by id and key, their traces, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, Literal

from pyrmq_core.client.admin.dead_letters import DeadLetters
from pyrmq_core.client.admin.group_tables import connections_of
from pyrmq_core.client.admin.message_queries import MessageList, MessageQueries
from pyrmq_core.client.admin.message_tracks import MessageTrack, tracks_of
from pyrmq_core.client.admin.servers import AdminFamily, Server
from pyrmq_core.client.unpacking import in_thread
from pyrmq_core.errors import BrokerNotFound, InvalidArgument, InvalidState, NoRoute, RocketMQError
from pyrmq_core.model import MessageExt, MessageQueue, SendResult
from pyrmq_core.protocol.messages.names import check_group
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.messages.trace import RECORD_END, TRACE_TOPIC
from pyrmq_core.protocol.messages.trace_events import TraceEvent, trace_events
from pyrmq_core.protocol.requests.client.consume_message_directly import ConsumeDirectlyResult, ConsumeMessageDirectly

# The most trace messages of one key that each broker returns. A message has about two for each group and try.
TRACE_MESSAGES: Final = 64
# The most events of a trace, and the most bytes that are read of a trace message. Clients send up to 128 KB.
MAX_EVENTS: Final = 10_000
TRACE_BYTES: Final = 1024 * 1024
DEAD_LETTERS: Final = 1000


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """The events of one message from trace records, in order of time, and the errors of brokers that did not answer."""

    events: tuple[TraceEvent, ...]
    failures: Mapping[str, RocketMQError]


class Messages(AdminFamily):
    """Methods about stored messages. A list has the messages of all brokers that answer, and the others' errors."""

    async def by_id(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """Returns the message with this `offset_msg_id`, or the first message of a batch record.

        The query goes to the broker whose address is in the id, so use only ids that you trust. Raises `ResponseError`
        if the broker has no message there. A broker of 5.x with authorization needs the message's `topic`.
        """
        return await self._queries().by_id(offset_msg_id, topic)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 32,
        begin: datetime | None = None,
        end: datetime | None = None,
        body_bytes: int | None = None,
    ) -> MessageList:
        """Returns messages that have `key` among their keys, stored from `begin` to `end`, oldest first.

        A key with spaces must be the whole text of the keys, such as a row's key from a change-data-capture tool. Each
        broker of the topic returns its newest `max_num`. A broker of this project returns 15 MiB at most. No messages
        is no error. A message can be found a moment after it is stored. With `body_bytes` bodies are cut to that
        length. Messages are left out if they cannot be read, or once all bodies together exceed 256 MiB. `failures` has
        the errors of brokers that did not answer, or whose messages are left out.
        """
        return await self._queries().by_key(topic, key, max_num, begin, end, body_bytes)

    async def by_unique_key(self, topic: str, unique_key: str, *, body_bytes: int | None = None) -> MessageList:
        """Returns every message with this `msg_id`, the producer's UNIQ_KEY. A repeated send may have stored it twice.

        `body_bytes` and the field `failures` of the result are as in `by_key`.
        """
        return await self._queries().by_unique_key(topic, unique_key, body_bytes)

    async def earliest_store_time(self, queue: MessageQueue) -> datetime | None:
        """Returns the store time of the queue's oldest message, or None for a queue without messages."""
        return await self._queries().earliest_store_time(queue)

    async def track(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Returns the message's state in each group that reads its topic, as `mqadmin queryMsgById` prints it.

        The result includes the message's copies in the group's retry and dead-letter topics, found by the unique key.
        """
        return await tracks_of(self._servers, self._queries(), message)

    async def trace(self, msg_id: str, *, trace_topic: str = TRACE_TOPIC) -> MessageTrace:
        """Returns the events of the message that producers and consumers have reported by message traces, oldest first.

        `msg_id` is the unique key. An empty result is no error: clients report only if tracing is switched on, and some
        seconds later.
        """
        try:
            trace_messages = await self._queries().by_key(trace_topic, msg_id, TRACE_MESSAGES, None, None, TRACE_BYTES)
        except NoRoute:
            if trace_topic != TRACE_TOPIC:
                raise
            return MessageTrace((), {})  # brokers create the trace topic at the first trace message
        events: list[TraceEvent] = []
        for message in trace_messages.messages:
            events += await in_thread(_events_of, message, msg_id, MAX_EVENTS - len(events))
        return MessageTrace(tuple(sorted(events, key=lambda event: event.timestamp_ms or 0)), trace_messages.failures)

    async def dead_letters(
        self,
        group: str,
        *,
        max_num: int = DEAD_LETTERS,
        begin: datetime | None = None,
        body_bytes: int | None = None,
    ) -> MessageList:
        """Returns the newest `max_num` dead letters of each queue of a group, stored from `begin` on, oldest first.

        With `body_bytes` bodies are cut to that length. Dead letters are left out if they cannot be read, or once all
        bodies together exceed 256 MiB. `failures` has the errors of brokers that did not answer, or whose dead letters
        are left out.
        """
        check_group(group)
        return await DeadLetters(self._servers, group).newest(max_num, begin, body_bytes)

    async def resend(self, group: str, message: MessageExt, *, to: Literal["retry", "origin"] = "retry") -> SendResult:
        """Sends a copy of a dead letter: to the group alone, or with "origin" to the message's original topic.

        The dead letter itself stays, since RocketMQ deletes no single message. Raises `NoRoute` if the group has no
        retry topic, which brokers create when a member connects, and the errors of `Producer.send`.
        """
        check_group(group)
        return await DeadLetters(self._servers, group).resend(message, to)

    async def consume_directly(
        self, group: str, message: MessageExt, *, client_id: str | None = None
    ) -> ConsumeDirectlyResult:
        """Makes one member of the group consume the message now, and returns its result. Offsets do not change.

        Without `client_id` it is the member with the lowest id at the message's broker. Raises `InvalidState` if no
        member is connected there. Raises `InvalidArgument` for a message from a batch topic, since brokers would pass
        the whole batch record to the member.
        """
        check_group(group)
        if message.sys_flag & BATCH_RECORD:
            raise InvalidArgument(
                f"message {message.msg_id} lies in a batch that is one record, of which a broker passes no single "
                "message on; send it again, or reset the group's offset to it"
            )
        servers = await self._servers.brokers()
        server = servers.get(message.broker_name)
        if server is None:
            raise BrokerNotFound(
                f"the NameServer knows no broker {message.broker_name!r}, which has message {message.msg_id}; look for "
                "it by key, which names its broker",
                broker_name=message.broker_name,
            )
        on_wire = self._servers.on_wire(group)
        request = ConsumeMessageDirectly(
            on_wire,
            client_id or await self._first_member(server, group),
            message.offset_msg_id,
            server.name,
            self._servers.on_wire(message.topic),
        )
        answer = await self._servers.ask(server, request.to_command(), f"group {group}")
        return ConsumeDirectlyResult.from_command(answer)

    async def _first_member(self, server: Server, group: str) -> str:
        members = (await connections_of(self._servers, server, self._servers.on_wire(group))).connections
        if not members:
            raise InvalidState(f"no member of group {group} is connected to {server}; start one, or look at its name")
        return min(member.client_id for member in members)

    def _queries(self) -> MessageQueries:
        servers = self._servers
        return MessageQueries(servers.session, timeout=servers.timeout, namespace=servers.namespace)


def _events_of(trace_message: MessageExt, msg_id: str, most: int) -> list[TraceEvent]:
    records = trace_message.body.decode(errors="replace").split(RECORD_END)
    text = RECORD_END.join(record for record in records if msg_id in record)
    return list(islice((event for event in trace_events(text) if event.msg_id == msg_id), most))
