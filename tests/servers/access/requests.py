"""Requests as clients send them, signed and not."""

from __future__ import annotations

from dataclasses import replace

from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData


def signed(request: Command, key: str, secret: str) -> Command:
    return replace(request, ext=sign(request.ext, request.body, key, secret))


def heart_beat(*consumers: tuple[str, tuple[str, ...]]) -> Command:
    """Returns a heartbeat of these groups, each with its topics."""
    data = tuple(
        ConsumerData(group, subscriptions=tuple(SubscriptionData(topic) for topic in topics))
        for group, topics in consumers
    )
    return HeartBeat("client", ("producers",), data).to_command()
