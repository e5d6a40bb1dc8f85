"""A broker's role: a master, or a slave, which keeps a copy of its master's messages."""

from __future__ import annotations

from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import parse_address

ASYNC_MASTER: Final = "ASYNC_MASTER"
SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE: Final = "SLAVE"
ROLES: Final = (ASYNC_MASTER, SYNC_MASTER, SLAVE)
# The id of a master (common/MixAll.java); its slaves have others.
MASTER_ID: Final = 0
MAX_BROKER_ID: Final = 2**63 - 1


def check_role(role: str, broker_id: int, ha_master_address: str) -> None:
    """Raises `InvalidArgument` unless brokerRole, brokerId and haMasterAddress agree."""
    if role not in ROLES:
        raise InvalidArgument(f"brokerRole is {role!r}; {', '.join(ROLES)} exist")
    if role != SLAVE and broker_id != MASTER_ID:
        raise InvalidArgument(f"brokerId is {broker_id} and brokerRole {role}: a master has brokerId=0")
    if role == SLAVE and not MASTER_ID < broker_id <= MAX_BROKER_ID:
        raise InvalidArgument(
            f"brokerId is {broker_id} and brokerRole {role}: a slave has a brokerId of 1 or more, of its own"
        )
    if ha_master_address:
        try:
            parse_address(ha_master_address)
        except InvalidArgument as error:
            raise InvalidArgument(f"haMasterAddress: {error}") from error
