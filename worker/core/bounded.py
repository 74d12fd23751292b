"""A table that forgets what came first, so that it stays within a bound. Pure."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Note something as what came last; past `most` what came first is forgotten."""
    table.pop(key, None)
    table[key] = value
    if len(table) > most:
        del table[next(iter(table))]
