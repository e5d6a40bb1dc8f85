"""The base of the families of an `Admin`: `admin.topics`, `admin.groups` and their neighbours, one module each.

A family is an attribute of `Admin` whose methods are coroutines. `blocking/admin_families.py` makes the blocking form
of each from it, one line a method.
"""

from __future__ import annotations

from pyrmq_core.client.admin.servers import AdminServers


class AdminFamily:
    """One family of methods of an `Admin`, over its servers."""

    def __init__(self, servers: AdminServers) -> None:
        self._servers = servers
