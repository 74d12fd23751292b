"""The shapes of the clusters that the tests of this folder share."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many servers, with which settings: a file's SHARED, which the fixture `shared` reads."""

    masters: int = 3
    workers: int = 2
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
