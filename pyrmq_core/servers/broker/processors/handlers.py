"""The types of request handlers and their answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from pyrmq_core.network import LateAnswer, Peer
from pyrmq_core.protocol.framing.command import Command

# What a handler returns: the answer, a coroutine or `LateAnswer` that provides it later, or None for no answer.
Answer: TypeAlias = Command | Coroutine[Any, Any, Command | None] | LateAnswer | None
Handler: TypeAlias = Callable[[Command, Peer], Answer]
Handlers: TypeAlias = Mapping[int, Handler]

HELP: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
