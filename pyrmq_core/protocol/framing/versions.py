"""Versions of brokers as numbers, as they stand in commands and registrations (common/MQVersion.java)."""

from __future__ import annotations

from typing import Final

# The first release with timer messages, batch topics, topic queue mappings, and `boundaryType` in offset searches.
V5_0_0: Final = 413
# The first release whose SQL92 has CONTAINS, STARTSWITH and ENDSWITH.
V5_1_3: Final = 439
# From this one on each release has two numbers, of its snapshot and its own, and each minor version ten releases.
V4_0_0_SNAPSHOT: Final = 212
RELEASES: Final = 10


def version_name(version: int) -> str:
    """Returns `5.4.0` or `5.4.0-SNAPSHOT`; the bare number of a version before 4.0, whose numbers have no order."""
    if version < V4_0_0_SNAPSHOT:
        return str(version)
    release, snapshot = divmod(version - V4_0_0_SNAPSHOT, 2)
    minor, patch = divmod(release, RELEASES)
    major, minor = divmod(minor, RELEASES)
    return f"{4 + major}.{minor}.{patch}{'' if snapshot else '-SNAPSHOT'}"
