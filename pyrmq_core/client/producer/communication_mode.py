"""How a send waits for its answer (client/impl/CommunicationMode.java)."""

import enum


class CommunicationMode(enum.Enum):
    """What may be retried depends on it."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"
