"""`Identity`: the address that a broker's clients connect to, and the ids that it gives to messages."""

from __future__ import annotations

import itertools
import os
import random
from datetime import UTC, datetime

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import format_address
from pyrmq_core.protocol.messages.message_id import UniqueIdMaker, month_start_ms
from pyrmq_core.protocol.messages.record import pack_host
from pyrmq_core.servers.broker import clock


class Identity:
    """A broker's address, and the generator of unique message ids. `store_host` is the address as packed into
    records."""

    def __init__(self, ip: str, port: int) -> None:
        self.address = format_address(ip, port)
        try:
            self.store_host = pack_host(self.address)
        except InvalidArgument as error:
            raise InvalidArgument(f"brokerIP1 is {ip!r}; it has to be an ip address") from error
        self.booted_ms = clock.now_ms()
        self._ids = UniqueIdMaker(self.store_host[:-4], os.getpid(), random.getrandbits(32))
        self._counter = itertools.count(random.randrange(1 << 16))

    def unique_id(self, now_ms: int) -> str:
        """Returns a new UNIQ_KEY, for a message that came without one."""
        zone = datetime.now(UTC).astimezone().tzinfo or UTC
        return self._ids.make(now_ms, month_start_ms(now_ms, zone), next(self._counter))
