"""The hooks around each request of a client to a NameServer or broker: the parameter `rpc_hooks` of `Client`.

Source: remoting/RPCHook.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from pyrmq_core.client.hook_calls import check_hooks, quietly
from pyrmq_core.protocol.framing.command import Command


class RpcHook(Protocol):
    """An object with methods that are called around each request to a NameServer or broker (Java's RPCHook).

    `do_before_request` runs before the request is signed. It may return another request, such as one with more header
    fields.
    """

    def do_before_request(self, address: str, request: Command) -> Command | None:
        """Returns the request to send in place of `request`, or None to send `request` itself."""

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        """Runs after the answer has arrived, before the caller receives it."""


RPC_HOOKS: Final = (("do_before_request", "do_after_response"),)


class RpcHooks:
    def __init__(self, hooks: Sequence[RpcHook]) -> None:
        check_hooks(hooks, RPC_HOOKS)
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, address: str, request: Command) -> Command:
        for hook in self._hooks:
            changed = quietly(hook.do_before_request, address, request)
            request = changed if isinstance(changed, Command) else request
        return request

    def after(self, address: str, request: Command, answer: Command) -> None:
        for hook in self._hooks:
            quietly(hook.do_after_response, address, request, answer)


class NamespaceV2:
    """An RPC hook that adds a client's `namespace_v2` to the header of each request. It runs before all others."""

    def __init__(self, namespace: str) -> None:
        self._fields = {"nsd": "true", "ns": namespace}

    def do_before_request(self, address: str, request: Command) -> Command:
        return replace(request, ext={**request.ext, **self._fields})

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        pass
