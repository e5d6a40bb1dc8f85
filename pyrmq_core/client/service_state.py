"""The states of a client, producer or consumer from its creation to its shutdown (common/ServiceState.java)."""

from __future__ import annotations

import enum
import sys

import trio

from pyrmq_core.errors import InvalidState


class ServiceState(enum.Enum):
    """The state of a client, producer, consumer or `Admin`."""

    CREATE_JUST = "CREATE_JUST"
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"
    START_FAILED = "START_FAILED"


class Life:
    """The state of a client, producer or consumer. Its methods raise `InvalidState` for a call at the wrong time.

    Errors have Java's words, and name the object by `kind`, such as `producer`, and by `name`, its group or id. While
    the object starts, its state is START_FAILED, as in Java (DefaultMQProducerImpl.java, start).
    """

    def __init__(self, kind: str, name: str) -> None:
        self.state = ServiceState.CREATE_JUST
        self._kind = kind
        self._name = name

    def starting(self) -> None:
        if self.state is not ServiceState.CREATE_JUST:
            raise InvalidState(
                f"The {self._kind} service state not OK, maybe started once, {self.state.value}: {self._kind} "
                f"{self._name} starts once; make a new one"
            )
        self.state = ServiceState.START_FAILED

    def started(self) -> None:
        self.state = ServiceState.RUNNING

    def not_begun(self) -> None:
        """Sets the state to CREATE_JUST after a refused start, so that the object may be started again."""
        self.state = ServiceState.CREATE_JUST

    def ended(self) -> None:
        self.state = ServiceState.SHUTDOWN_ALREADY

    def check_running(self) -> None:
        if self.state is not ServiceState.RUNNING:
            raise self.not_running()

    def not_running(self) -> InvalidState:
        return InvalidState(
            f"The {self._kind} service state not OK, {self.state.value}: {self._kind} {self._name} is used inside its "
            "`async with` block"
        )


def check_trio() -> None:
    """Raises `InvalidState` unless the caller runs under trio.

    The error names the package to use instead: `pyrmq_core.aio` under asyncio, otherwise `pyrmq_core.blocking`.
    """
    if trio.lowlevel.in_trio_run():
        return
    asyncio = sys.modules.get("asyncio")  # loaded only in a program that uses asyncio
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise InvalidState(
            "this program runs under asyncio, and the names of pyrmq_core itself run under trio: use those of "
            "pyrmq_core.aio, which are the same"
        )
    raise InvalidState(
        "the async names of pyrmq_core run under trio.run(...); in a program without an async loop use those of "
        "pyrmq_core.blocking, which are the same"
    )
