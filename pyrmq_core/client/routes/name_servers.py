"""Queries to NameServers: to the chosen one while it answers, otherwise to the next, until the time is over.

NameServers share no data: a NameServer answers that a topic does not exist if the topic's brokers do not register
there. So if the chosen NameServer lacks a topic, broker or value, the client queries the others too. Java's client does
not.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import trio

from pyrmq_core.client.routing.name_server_choice import NameServerChoice
from pyrmq_core.errors import CallTimeout, ConnectionClosed, NetworkError, NoNameServer, ProtocolError, RocketMQError
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.protocol.framing.codes import request_name
from pyrmq_core.protocol.framing.command import Command

log = logging.getLogger(__name__)

T = TypeVar("T")
MIN_SHARE_SECONDS: Final = 0.05
# A timeout of at least this time closes the connection (NettyRemotingClient.java, MIN_CLOSE_TIMEOUT_MILLIS).
MIN_CLOSE_SECONDS: Final = 0.1
# The most time for querying all other NameServers at once, if the chosen one lacks a topic, broker or value. It is at
# most half of the time left.
MAX_FURTHER_SECONDS: Final = 1.0


NONE_NAMED: Final = (
    'no NameServer is named: give nameserver="host:port" (Spark: option nameServer; pyrmq: -n host:port), or set '
    "NAMESRV_ADDR"
)


class Asking(Protocol):
    """An object that sends requests to servers: a client's `RemotingClient`, or a pool of connections."""

    async def call(self, address: str, command: Command, *, timeout: float) -> Command: ...

    def close(self, address: str) -> None: ...


class NameServers:
    """The list of NameServers, and the NameServer that is queried first.

    Source: remoting/netty/NettyRemotingClient.java (getAndCreateNameserverChannel).
    """

    def __init__(self, pool: Asking, addresses: Sequence[str], *, random_start: int) -> None:
        self._pool = pool
        self._choice = NameServerChoice.starting_at(addresses, random_start)
        self._failures: dict[str, RocketMQError] = {}
        self.none_named = NONE_NAMED  # the error's text while the list is empty
        self._lines = RareLines()

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._choice.addresses

    @property
    def failures(self) -> dict[str, RocketMQError]:
        """The errors of the listed NameServers whose last query failed, by address."""
        return {address: self._failures[address] for address in self.addresses if address in self._failures}

    def set_addresses(self, addresses: Sequence[str], *, random_start: int) -> None:
        """Replaces the list of NameServers, and closes connections to those that are no longer listed.

        The chosen NameServer stays chosen if it is still listed. Otherwise `random_start` chooses one. The same
        addresses in another order change nothing.
        """
        before = self._choice
        if set(addresses) == set(before.addresses):
            return
        log.info("NameServers are %s from now on", ";".join(addresses))
        self._choice = NameServerChoice.starting_at(addresses, random_start)
        if before.addresses and before.address in addresses:
            self._choice = replace(self._choice, chosen=self._choice.addresses.index(before.address))
        for gone in set(before.addresses) - set(addresses):
            self._pool.close(gone)
            self._failures.pop(gone, None)

    async def ask(self, command: Command, *, timeout: float) -> Command:
        return await self.ask_for(command, lambda answer, _: answer, timeout=timeout)

    async def ask_for(
        self,
        command: Command,
        read: Callable[[Command, str], T],
        *,
        timeout: float,
        lacks: Callable[[T], bool] = operator.not_,
    ) -> T:
        """Sends a query to one NameServer after another until one answers, and returns `read(answer, address)`.

        Each NameServer has an equal share of the time left. `lacks(result)` is True for a result that the caller does
        not want, by default None or an empty one. Then all NameServers not yet queried are queried at once, and the
        first other result is returned, or else the unwanted one. A `ProtocolError` of `read` is a failure of that
        NameServer, and any other error of `read` is raised. Raises `NoNameServer` if all fail, with each NameServer's
        failure.
        """
        if not self.addresses:
            raise NoNameServer(self.none_named)
        began = trio.current_time()
        deadline = began + timeout
        failures: list[str] = []
        queried: set[str] = set()
        for left in range(len(self.addresses), 0, -1):
            # Another task may have chosen a NameServer that this call has queried before.
            choice = self._choice.next_but(queried)
            queried.add(choice.address)
            share = max(MIN_SHARE_SECONDS, (deadline - trio.current_time()) / left)
            try:
                result = await self._one(choice.address, command, read, share)
            except NetworkError as error:
                failures.append(str(error))
                self._switch_from(choice)
            except ProtocolError as error:
                failures.append(f"{choice.address} answered what cannot be read: {error}")
                self._switch_from(choice)
            else:
                if not lacks(result):
                    return result
                others = [address for address in self.addresses if address not in queried]
                seconds = min(MAX_FURTHER_SECONDS, (deadline - trio.current_time()) / 2)
                further = await self._further(others, command, read, lacks, seconds)
                if further and self._lines.of(choice.address).is_due():
                    log.info(
                        "NameServer %s lacks what another has (%s): look whether all brokers register at each of %s",
                        choice.address,
                        request_name(command.code),
                        ";".join(self.addresses),
                    )
                return further[0] if further else result
        raise NoNameServer(
            f"no NameServer answered {request_name(command.code)} in {trio.current_time() - began:.3g} s "
            f"({'; '.join(failures)}); "
            "check the addresses, and that a NameServer runs there"
        )

    async def _further(
        self,
        addresses: Sequence[str],
        command: Command,
        read: Callable[[Command, str], T],
        lacks: Callable[[T], bool],
        seconds: float,
    ) -> list[T]:
        """Queries all `addresses` at once. Returns a list with the first result for which `lacks` is False.

        Returns an empty list if no such result arrives within `seconds`.
        """
        results: list[T] = []

        async def ask(address: str) -> None:
            try:
                result = await self._one(address, command, read, seconds)
            except RocketMQError:
                return  # `_one` has added the error to `failures`
            if not lacks(result) and not results:
                results.append(result)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        return results

    async def _one(self, address: str, command: Command, read: Callable[[Command, str], T], seconds: float) -> T:
        try:
            result = read(await self._call(address, command, seconds), address)
        except RocketMQError as error:
            self._failures[address] = error
            raise
        self._failures.pop(address, None)
        return result

    async def _call(self, address: str, command: Command, seconds: float) -> Command:
        """Returns a NameServer's answer. Tries again on a closed connection, since the server may have restarted."""
        deadline = trio.current_time() + seconds
        try:
            try:
                return await self._pool.call(address, command, timeout=seconds)
            except ConnectionClosed:
                return await self._pool.call(address, command, timeout=max(0.0, deadline - trio.current_time()))
        except CallTimeout:
            if seconds >= MIN_CLOSE_SECONDS:
                self._pool.close(address)  # the next call then opens a new connection
            raise

    def _switch_from(self, choice: NameServerChoice) -> None:
        if self._choice is choice and len(choice.addresses) > 1:
            self._choice = choice.next()
            log.info("NameServer %s does not answer; asking %s from now on", choice.address, self._choice.address)
