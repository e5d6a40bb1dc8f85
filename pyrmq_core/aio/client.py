"""The asyncio `Client`: connections, routes and heartbeats, which producers and consumers can share.

`OwnerFace` is the base class of the producer, the consumers and `Admin`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from pyrmq_core.aio.face import AsyncioFace
from pyrmq_core.client.client import Client as TrioClient
from pyrmq_core.client.client_settings import ClientChoice, ClientSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.errors import InvalidState

Owner = TypeVar("Owner", bound=SessionOwner[Any])


class Client(AsyncioFace[TrioClient]):
    """The asyncio form of `pyrmq_core.Client`. Nothing touches the network before it is opened."""

    @parameters_of(ClientSettings)
    def __init__(self, settings: ClientSettings) -> None:
        self._named = repr(TrioClient._of(settings))
        super().__init__(lambda _: TrioClient._of(settings), None)

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client. Raises `InvalidState` before it is open."""
        if self._held is None or not self._held.has_opened:
            raise InvalidState(f"{self!r} has no client_id before it is open: async with, or await open()")
        return self._held.value.client_id

    @property
    def state(self) -> ServiceState:
        """The state of the client: just created, running, shut down, or start failed."""
        return self._service_state()

    def __repr__(self) -> str:
        return f"<asyncio {self._named}>"


class OwnerFace(AsyncioFace[Owner]):
    group: str

    def __init__(self, kind: type[Owner], settings: ClientChoice[Client]) -> None:
        super().__init__(partial(kind._of, settings), settings.shared_client(Client, "pyrmq_core.aio.Client"))

    def __repr__(self) -> str:
        return f"<asyncio {type(self).__name__} {self.group}>"

    @property
    def state(self) -> ServiceState:
        """The state of the object: just created, running, shut down, or start failed."""
        return self._service_state()
