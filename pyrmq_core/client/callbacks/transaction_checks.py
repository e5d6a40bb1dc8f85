"""Brokers' checks of half messages, passed to the producer of the group that each half message names."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyrmq_core.model import MessageExt
from pyrmq_core.network import Handler, Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.properties import PGROUP
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState

log = logging.getLogger(__name__)

TakeCheck = Callable[[CheckTransactionState, MessageExt, Peer], None]


class TransactionChecks:
    """The handler of transaction checks: a client's producers by group."""

    def __init__(self) -> None:
        self._by_group: dict[str, TakeCheck] = {}

    def register(self, group: str, check: TakeCheck) -> None:
        self._by_group[group] = check

    def unregister(self, group: str) -> None:
        self._by_group.pop(group, None)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: self._pass_on}

    def _pass_on(self, request: Command, peer: Peer) -> None:
        """Passes the check to the producer of its group; its END_TRANSACTION is the answer, so no response is sent."""
        header = CheckTransactionState.from_command(request)
        message = header.message()
        group = message.properties.get(PGROUP, "")
        check = self._by_group.get(group)
        if check is None:
            log.info("%s asks for a transaction of group %r, which has no producer here", peer.address, group)
        else:
            check(header, message, peer)
