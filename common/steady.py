"""An iteration that failed stays failed.

A generator that has raised reports its end at the next call, and a caller that asks again, or takes the end of a
source for the end of its data, loses the rest without a word. Called wherever data comes out of a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Steady(Iterator[T_co]):
    """The same items; the error that ended them is raised again and again."""

    def __init__(self, items: Iterator[T_co]) -> None:
        self._items = items
        self._error: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        if self._error is not None:
            raise self._error
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise

    def close(self) -> None:
        """Want no more of it: what the generator holds is given back now."""
        close: Callable[[], None] | None = getattr(self._items, "close", None)
        if close is not None:
            close()
