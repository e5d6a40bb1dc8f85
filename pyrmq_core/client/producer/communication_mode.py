"""The modes of a send: sync, async, one-way (client/impl/CommunicationMode.java)."""

import enum


class CommunicationMode(enum.Enum):
    """A send's mode, which decides what may be retried."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"
