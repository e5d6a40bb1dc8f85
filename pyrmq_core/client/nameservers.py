"""Asks NameServers: the chosen one while it answers, else the next in turn, until one answers or the time is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from pyrmq_core.client.routing import NameServerChoice
from pyrmq_core.errors import CallTimeout, NetworkError, NoNameServer, ProtocolError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.codes import request_name
from pyrmq_core.protocol.command import Command

log = logging.getLogger(__name__)


class NameServers:
    """The list of NameServers, of which one is chosen (remoting/netty/NettyRemotingClient.java,
    getAndCreateNameserverChannel)."""

    def __init__(self, pool: ConnectionPool, addresses: Sequence[str], *, random_start: int) -> None:
        self._pool = pool
        self._choice = NameServerChoice.starting_at(addresses, random_start)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._choice.addresses

    async def ask(self, command: Command, *, timeout: float) -> Command:
        """The first answer, whatever its code; each NameServer is tried once, with a fair share of the time left.

        `NoNameServer` names all that were tried, and why each failed.
        """
        if not self.addresses:
            raise NoNameServer(
                'no NameServer is named: give nameserver="host:port" (Spark: option nameServer), or set NAMESRV_ADDR'
            )
        deadline = trio.current_time() + timeout
        failures: list[str] = []
        for left in range(len(self.addresses), 0, -1):
            choice = self._choice
            share = max(0.05, (deadline - trio.current_time()) / left)
            try:
                return await self._pool.call(choice.address, command, timeout=share)
            except (NetworkError, ProtocolError) as error:
                failures.append(str(error))
                if isinstance(error, CallTimeout):
                    self._pool.close(choice.address)  # a silent NameServer is not asked again over the same connection
                self._switch_from(choice)
        raise NoNameServer(
            f"no NameServer answered {request_name(command.code)} within {timeout:g} s: {'; '.join(failures)}. "
            "Check the addresses, and that a NameServer listens there"
        )

    def _switch_from(self, choice: NameServerChoice) -> None:
        if self._choice is choice and len(choice.addresses) > 1:
            self._choice = choice.next()
            log.info("NameServer %s does not answer; asking %s from now on", choice.address, self._choice.address)
