"""Queries to NameServers: to the chosen one while it answers, else to the next in turn, until the time is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import trio

from pyrmq_core.client.routing.name_server_choice import NameServerChoice
from pyrmq_core.errors import CallTimeout, ConnectionClosed, NetworkError, NoNameServer, ProtocolError
from pyrmq_core.protocol.framing.codes import request_name
from pyrmq_core.protocol.framing.command import Command

log = logging.getLogger(__name__)

T = TypeVar("T")
MIN_SHARE_SECONDS: Final = 0.05
# A NameServer silent for less than this is not taken for dead (NettyRemotingClient.java, MIN_CLOSE_TIMEOUT_MILLIS).
MIN_CLOSE_SECONDS: Final = 0.1


class Asking(Protocol):
    """A caller of servers by address: a client's `RemotingClient`, or a bare pool of connections."""

    async def call(self, address: str, command: Command, *, timeout: float) -> Command: ...

    def close(self, address: str) -> None: ...


class NameServers:
    """The list of NameServers, and the chosen one (remoting/netty/NettyRemotingClient.java,
    getAndCreateNameserverChannel)."""

    def __init__(self, pool: Asking, addresses: Sequence[str], *, random_start: int) -> None:
        self._pool = pool
        self._choice = NameServerChoice.starting_at(addresses, random_start)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._choice.addresses

    def set_addresses(self, addresses: Sequence[str], *, random_start: int) -> None:
        """Sets another list; the chosen NameServer stays if it is listed. Another order alone changes nothing."""
        known = self._choice
        if set(addresses) == set(known.addresses):
            return
        log.info("NameServers are %s from now on", ";".join(addresses))
        self._choice = NameServerChoice.starting_at(addresses, random_start)
        if known.addresses and known.address in addresses:
            self._choice = replace(self._choice, chosen=self._choice.addresses.index(known.address))
        for gone in set(known.addresses) - set(addresses):
            self._pool.close(gone)

    async def ask(self, command: Command, *, timeout: float) -> Command:
        """Returns the first answer, with any code. Raises as `ask_for`."""
        return await self.ask_for(command, lambda answer, _: answer, timeout=timeout)

    async def ask_for(self, command: Command, read: Callable[[Command, str], T], *, timeout: float) -> T:
        """Returns `read(answer, address)` of the first answer.

        Each NameServer is tried once, with a fair share of the time left. A `ProtocolError` of `read` counts as that
        NameServer's failure, and the next one is tried; any other error of `read` is raised. `NoNameServer` names all
        NameServers tried, and why each failed.
        """
        if not self.addresses:
            raise NoNameServer(
                'no NameServer is named: give nameserver="host:port" (Spark: option nameServer), or set NAMESRV_ADDR'
            )
        deadline = trio.current_time() + timeout
        failures: list[str] = []
        for left in range(len(self.addresses), 0, -1):
            choice = self._choice
            share = max(MIN_SHARE_SECONDS, (deadline - trio.current_time()) / left)
            try:
                answer = await self._call(choice.address, command, share)
            except NetworkError as error:
                failures.append(str(error))
                self._switch_from(choice)
                continue
            try:
                return read(answer, choice.address)
            except ProtocolError as error:
                failures.append(f"{choice.address} answered what cannot be read: {error}")
                self._switch_from(choice)
        raise NoNameServer(
            f"no NameServer answered {request_name(command.code)} within {timeout:.3g} s ({'; '.join(failures)}); "
            "check the addresses, and that a NameServer runs there"
        )

    async def _call(self, address: str, command: Command, seconds: float) -> Command:
        """Returns the answer of one NameServer; tries once more after a closed connection, as after its restart."""
        deadline = trio.current_time() + seconds
        try:
            try:
                return await self._pool.call(address, command, timeout=seconds)
            except ConnectionClosed:
                return await self._pool.call(address, command, timeout=max(0.0, deadline - trio.current_time()))
        except CallTimeout:
            if seconds >= MIN_CLOSE_SECONDS:
                self._pool.close(address)  # the next call to a silent NameServer opens a new connection
            raise

    def _switch_from(self, choice: NameServerChoice) -> None:
        if self._choice is choice and len(choice.addresses) > 1:
            self._choice = choice.next()
            log.info("NameServer %s does not answer; asking %s from now on", choice.address, self._choice.address)
