"""Puts something in the place of an attribute of a module or class while a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

#: (owner, name, what to put there)
Swap = tuple[Any, str, Any]
#: In the place of what an owner has from elsewhere.
_INHERITED = object()


@contextmanager
def swapped(swaps: Iterable[Swap]) -> Iterator[None]:
    """What was there is back in its place afterwards."""
    wanted = list(swaps)
    saved = [(owner, name, owner.__dict__.get(name, _INHERITED)) for owner, name, _ in wanted]
    for owner, name, value in wanted:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in saved:
            if value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


class Mistakes(dict[str, Callable[[], list[Swap]]]):
    """Planted mistakes by name, each a function that says what to put in the place of what."""

    def add(self, make: Callable[[], list[Swap]]) -> Callable[[], list[Swap]]:
        """Register one; a decorator."""
        self[make.__name__] = make
        return make

    def planted(self, name: str) -> AbstractContextManager[None]:
        """The mistake is there while this lasts."""
        return swapped(self[name]())
