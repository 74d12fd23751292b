"""What users have installed: classes that entry points name, made here and watched where they decide.

Rules: what is theirs may raise anything; it is told of as an error that the caller knows, and nothing else ends.
Called by resolvers.py and fleet.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, TypeVar

from holdfast.common.errors import ConfigError
from holdfast.master.placement.members import NotEnoughError
from holdfast.master.placement.wishes import Adherence, OwnPolicy

POLICIES = "holdfast.policies"
T = TypeVar("T")


def make_installed(what: str, group: str, name: str, argument: str = "") -> Any:
    """Make what a user has installed under this name; it is called with `argument` if that is not empty.

    Raises ConfigError.
    """
    found = entry_points(group=group, name=name)
    if not found:
        known = sorted(each.name for each in entry_points(group=group))
        raise ConfigError(f"no {what} {name!r} is installed (entry points {group}: {known or 'none'})")
    try:
        made = next(iter(found)).load()
        return made(argument) if argument else made()
    except Exception as error:
        raise ConfigError(f"the {what} {name!r} cannot be made: {type(error).__name__}: {error}") from error


class WatchedPolicy(OwnPolicy):
    """A placement policy that a user has installed."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError."""
        self._name = name
        self._own: OwnPolicy = make_installed("placement policy", POLICIES, name)

    def rank(self, place: str, others: Sequence[str], home: str) -> int | None:
        """As it says. Raises NotEnoughError."""
        return self._asked(lambda: self._own.rank(place, others, home))

    def adherence(self, places: Sequence[str]) -> str:
        """As it says. Raises NotEnoughError."""
        return self._asked(lambda: Adherence(self._own.adherence(places)).value)

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except Exception as error:  # it is a user's
            raise NotEnoughError(f"the placement policy {self._name} fails: {type(error).__name__}: {error}") from error
