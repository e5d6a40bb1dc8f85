"""`SessionOwner`: the base of `Producer`, the consumers and `Admin`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from pyrmq_core.client.async_only import AsyncOnly
from pyrmq_core.client.client import Client
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.client_settings import ClientChoice
from pyrmq_core.client.service_state import Life, ServiceState
from pyrmq_core.errors import InvalidState

S = TypeVar("S", bound=ClientChoice[Any])


class SessionOwner(AsyncOnly, Generic[S]):
    """The base of producers, consumers and `Admin`. It uses a shared client's session, or opens and closes its own."""

    _KIND: ClassVar[str]  # the name of this kind of object in errors

    @classmethod
    def _of(cls, settings: S, client: Client | None) -> Self:
        owner = cls.__new__(cls)
        owner._begin(settings, client)
        return owner

    def _begin(self, settings: S, client: Client | None) -> None:
        self._shares_client = client is not None
        self._session = ClientSession(settings.own_client()) if client is None else client._session
        self._settings: S = replace(settings, namespace=self._session.namespace_or_own(settings.namespace))
        self._life = Life(self._KIND, getattr(settings, "group", f"over {self._session!r}"))
        self._stack = AsyncExitStack()
        self._configure()

    def _configure(self) -> None:
        """Does nothing. Subclasses override it to create the parts that need no event loop."""

    async def _opens(self, stack: AsyncExitStack) -> None:
        """Does nothing. Subclasses override it to create the parts that need the open session. `stack` closes them.

        If it raises `InvalidState`, the object may be opened again. After any other error it may not.
        """

    async def _closes(self, *, has_failed: bool) -> None:
        """Does nothing. Subclasses override it to finish their work before the session closes.

        With `has_failed`, the `async with` block raised an exception, and the subclass drops its work at once.
        """

    @property
    def state(self) -> ServiceState:
        """The state of the object: just created, running, shut down, or start failed."""
        return self._life.state

    async def __aenter__(self) -> Self:
        self._life.starting()
        async with AsyncExitStack() as stack:
            if not self._shares_client:
                await stack.enter_async_context(self._session)
            try:
                await self._opens(stack)
            except InvalidState:
                self._life.not_begun()
                raise
            stack.push_async_exit(self._end)
            self._stack = stack.pop_all()
        self._life.started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def _end(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._closes(has_failed=kind is not None)
        finally:
            self._life.ended()
