"""Passes brokers' requests to the consumer of the group that a request names.

If the client has no consumer of the group, it answers as Java's ClientRemotingProcessor does. It refuses requests for
the running info (307) and direct consumption (309), answers the status request (221) with an empty table, and does not
answer notifications (40) and resets (220).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

import trio

from pyrmq_core.errors import InvalidState
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.network import Handler, Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.client.consume_message_directly import ConsumeDirectlyResult, ConsumeMessageDirectly
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo, GetConsumerRunningInfo
from pyrmq_core.protocol.requests.client.get_consumer_status import ConsumerStatus, GetConsumerStatus
from pyrmq_core.protocol.requests.client.notify_consumer_ids_changed import NotifyConsumerIdsChanged
from pyrmq_core.protocol.requests.client.reset_consumer_offset import ResetConsumerOffset

log = logging.getLogger(__name__)

# The limit on consuming one message by request. A broker waits only 10 s for the result, and Java has no limit.
CONSUME_SECONDS: Final = 60.0
CONSUMED_AT_ONCE: Final = 16


class ConsumerMember(Protocol):
    """A consumer that answers brokers' requests. All methods but `consume_directly` return at once."""

    def consumer_ids_changed(self) -> None: ...

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None: ...

    def consumer_status(self, topic: str) -> Mapping[MessageQueue, int]: ...

    def running_info(self, *, jstack: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Calls the handler with the message and returns its result. The call is cancelled if it takes too long."""
        ...


class ConsumerRequests:
    """The client's consumers by group, and the handlers of the requests that brokers send to them.

    The requests are notices of changed members (40), resets of offsets (220), queries of offsets (221) and of the
    running info (307), and direct consumption of a message (309).
    """

    def __init__(self, *, consume_seconds: float = CONSUME_SECONDS) -> None:
        self._members: dict[str, ConsumerMember] = {}
        self._consume_seconds = consume_seconds
        self._consuming = 0

    def register(self, group: str, member: ConsumerMember) -> None:
        if group in self._members:
            raise InvalidState(
                f"The consumer group[{group}] has been created before, specify another name please. "
                "One client holds one consumer a group: use another group, or open another client"
            )
        self._members[group] = member

    def unregister(self, group: str) -> None:
        self._members.pop(group, None)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._consumer_ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _consumer_ids_changed(self, request: Command, peer: Peer) -> None:
        group = NotifyConsumerIdsChanged.from_command(request).consumer_group
        member = self._member(group, peer, request)
        if member is not None:
            member.consumer_ids_changed()

    def _reset_offsets(self, request: Command, peer: Peer) -> None:
        wanted = ResetConsumerOffset.from_command(request)
        member = self._member(wanted.group, peer, request)
        if member is not None:
            log.info("%s resets offsets of group %s, topic %s", peer.address, wanted.group, wanted.topic)
            member.reset_offsets(wanted.topic, wanted.offsets)

    def _consumer_status(self, request: Command, peer: Peer) -> Command:
        wanted = GetConsumerStatus.from_command(request)
        member = self._member(wanted.group, peer, request)
        return ConsumerStatus({} if member is None else member.consumer_status(wanted.topic)).to_command()

    def _running_info(self, request: Command, peer: Peer) -> Command:
        wanted = GetConsumerRunningInfo.from_command(request)
        member = self._member(wanted.consumer_group, peer, request)
        if member is None:
            return _unknown(wanted.consumer_group)
        return member.running_info(jstack=wanted.jstack_enable).to_command()

    def _consume_directly(self, request: Command, peer: Peer) -> Command | Awaitable[Command]:
        wanted = ConsumeMessageDirectly.from_command(request)
        member = self._member(wanted.consumer_group, peer, request)
        if member is None:
            return _unknown(wanted.consumer_group)
        return self._consume(member, wanted.message(), wanted.consumer_group)

    async def _consume(self, member: ConsumerMember, message: MessageExt, group: str) -> Command:
        if self._consuming >= CONSUMED_AT_ONCE:
            remark = f"the client consumes {CONSUMED_AT_ONCE} messages directly already; try again later"
            return refusal(ResponseCode.SYSTEM_BUSY, remark)
        self._consuming += 1
        try:
            with trio.move_on_after(self._consume_seconds):
                return (await member.consume_directly(message)).to_command()
        finally:
            self._consuming -= 1
        remark = f"consumer <{group}> Timeout: its listener did not end within {self._consume_seconds:g} s"
        return refusal(ResponseCode.CONSUME_MSG_TIMEOUT, remark)

    def _member(self, group: str, peer: Peer, request: Command) -> ConsumerMember | None:
        member = self._members.get(group)
        if member is None:
            log.debug("%s sent request %d of group %r, which has no consumer here", peer.address, request.code, group)
        return member


def _unknown(group: str) -> Command:
    return refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
