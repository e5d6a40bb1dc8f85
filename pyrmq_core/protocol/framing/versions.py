"""Versions of brokers as numbers, as they stand in commands and registrations (common/MQVersion.java)."""

from __future__ import annotations

from typing import Final

# The first release with timer messages, batch topics, topic queue mappings, and `boundaryType` in offset searches.
V5_0_0: Final = 413
