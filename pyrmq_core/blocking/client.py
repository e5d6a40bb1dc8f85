"""The blocking `Client`: connections, routes and heartbeats, which producers and consumers can share.

`OwnerFace` is the base class of the producer, the consumers and `Admin`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.client import Client as AsyncClient
from pyrmq_core.client.client_settings import ClientChoice, ClientSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.client.session_owner import SessionOwner

Owner = TypeVar("Owner", bound=SessionOwner[Any])


class Client(BlockingFace[AsyncClient]):
    """The blocking form of `pyrmq_core.Client`. Nothing touches the network before `open`, `with`, or the first use."""

    @parameters_of(ClientSettings)
    def __init__(self, settings: ClientSettings) -> None:
        super().__init__()
        self._settings = settings
        self._named = repr(self._make())  # raises for wrong arguments now, instead of at the first call

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client. Opens the client if needed. A child after `fork` has another id."""
        return self._async().client_id

    @property
    def state(self) -> ServiceState:
        """The state of the client: just created, running, shut down, or start failed."""
        return self._service_state()

    def __repr__(self) -> str:
        return f"<blocking {self._named}>"

    def _make(self) -> AsyncClient:
        return AsyncClient._of(self._settings)


class OwnerFace(BlockingFace[Owner]):
    """The base class of the blocking producer, consumers and `Admin`, each of which wraps the trio object of that name.

    After `fork`, a child process opens another trio object at its first call.
    """

    group: str

    def __init__(self, kind: type[Owner], settings: ClientChoice[Client]) -> None:
        super().__init__()
        self._kind = kind
        self._choice = settings
        if settings.shared_client(Client, "pyrmq_core.blocking.Client") is None:
            self._make()  # raises for wrong arguments now, instead of at the first call

    def __repr__(self) -> str:
        return f"<blocking {type(self).__name__} {self.group}>"

    @property
    def state(self) -> ServiceState:
        """The state of the object: just created, running, shut down, or start failed."""
        return self._service_state()

    def _make(self) -> AbstractAsyncContextManager[Owner]:
        client = self._choice.client
        owner: AbstractAsyncContextManager[Any] = self._kind._of(
            self._choice, None if client is None else client._async()
        )
        return owner
