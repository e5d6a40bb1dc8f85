"""Namespaces, second form: every request names the tenant in two header fields, names stay as they are (5.x).

Source: client/rpchook/NamespaceRpcHook.java, 5.3.3. Servers that know of none pass the fields over.
"""

from __future__ import annotations

from dataclasses import replace

from pyrmq_core.protocol.framing.command import Command


class NamespaceV2:
    """An RPC hook that comes before all others."""

    def __init__(self, namespace: str) -> None:
        self._fields = {"nsd": "true", "ns": namespace}

    def do_before_request(self, address: str, request: Command) -> Command:
        return replace(request, ext={**request.ext, **self._fields})

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        pass
