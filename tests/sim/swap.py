"""Puts something in the place of an attribute of a module or class while a block runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: (owner, name, what to put there)
Swap = tuple[Any, str, Any]


@contextmanager
def swapped(swaps: Iterable[Swap]) -> Iterator[None]:
    """What was there is back in its place afterwards."""
    wanted = list(swaps)
    saved = [(owner, name, owner.__dict__[name]) for owner, name, _ in wanted]
    for owner, name, value in wanted:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)
