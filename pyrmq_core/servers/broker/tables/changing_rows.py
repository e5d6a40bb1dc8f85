"""`ChangingRows`: a table whose snapshots copy no rows. After a snapshot, a row is copied before it changes."""

from __future__ import annotations

from collections.abc import Callable, ItemsView
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ChangingRows(Generic[K, V]):
    """A table of rows (dicts or sets) by key, with cheap snapshots.

    `make` copies a row, or creates an empty one.
    """

    def __init__(self, make: Callable[..., V]) -> None:
        self._make = make
        self._rows: dict[K, V] = {}
        self._unshared: dict[K, V] = {}  # the rows that are in no snapshot, and may change

    def find(self, key: K) -> V | None:
        """Returns a row for reading, or None for an unknown key."""
        return self._rows.get(key)

    def change(self, key: K) -> V:
        """Returns a row, which the caller must change before the next snapshot. An unknown key gets an empty row."""
        row = self._unshared.get(key)
        if row is None:
            before: Any = self._rows.get(key, ())
            row = self._rows[key] = self._unshared[key] = self._make(before)
        return row

    def remove(self, key: K) -> None:
        self._rows.pop(key, None)
        self._unshared.pop(key, None)

    def items(self) -> ItemsView[K, V]:
        return self._rows.items()

    def snapshot(self) -> dict[K, V]:
        """Returns all rows as they are now. The caller must not change them, and later changes do not affect them."""
        self._unshared = {}
        return dict(self._rows)
