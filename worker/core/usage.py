"""What a worker tells the masters of who holds how much here. Pure; called by membership/registration.py."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from holdfast.common.ids import Instance, ShuffleKey
from holdfast.common.limits import APPLICATIONS_REPORTED_MAX, SHUFFLES_REPORTED_MAX
from holdfast.common.sizes import UsageTotals


class ApplicationUsage(NamedTuple):
    """What one application holds, and its largest shuffles, by bytes."""

    instance: Instance
    held: UsageTotals
    largest: list[tuple[int, UsageTotals]]


def by_application(
    found: Iterable[tuple[ShuffleKey, UsageTotals]],
    *,
    applications_max: int = APPLICATIONS_REPORTED_MAX,
    shuffles_max: int = SHUFFLES_REPORTED_MAX,
) -> list[ApplicationUsage]:
    """Add up what was found, a shuffle may come several times; return the largest applications, largest first."""
    applications: dict[Instance, dict[int, UsageTotals]] = {}
    for key, held in found:
        shuffles = applications.setdefault(key.instance, {})
        shuffles[key.shuffle] = shuffles.get(key.shuffle, UsageTotals()).plus(held)
    usages = (
        ApplicationUsage(
            instance,
            reduce(UsageTotals.plus, shuffles.values()),
            heapq.nlargest(shuffles_max, shuffles.items(), key=lambda item: item[1]),
        )
        for instance, shuffles in applications.items()
    )
    return heapq.nlargest(applications_max, usages, key=lambda each: each.held)
