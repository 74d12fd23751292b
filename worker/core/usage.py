"""What a worker tells the masters of who holds how much here. Pure; called by membership/registration.py."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.common.ids import Instance, ShuffleKey
from holdfast.common.limits import APPLICATIONS_TOLD_MAX, SHUFFLES_TOLD_MAX


class UsageTotals(NamedTuple):
    """Bytes and files, of a shuffle (all generations) or of an application."""

    size_bytes: int = 0
    files: int = 0


class ApplicationUsage(NamedTuple):
    """What one application holds, and its largest shuffles, by bytes."""

    instance: Instance
    held: UsageTotals
    largest: list[tuple[int, UsageTotals]]


def by_application(
    found: Iterable[tuple[ShuffleKey, UsageTotals]],
    *,
    applications_max: int = APPLICATIONS_TOLD_MAX,
    shuffles_max: int = SHUFFLES_TOLD_MAX,
) -> list[ApplicationUsage]:
    """Add up what was found, a shuffle may come several times; return the largest applications, largest first."""
    applications: dict[Instance, dict[int, UsageTotals]] = {}
    for key, (size, files) in found:
        shuffles = applications.setdefault(key.instance, {})
        before = shuffles.get(key.shuffle, UsageTotals())
        shuffles[key.shuffle] = UsageTotals(before.size_bytes + size, before.files + files)
    told = (
        ApplicationUsage(
            instance,
            UsageTotals(
                sum(each.size_bytes for each in shuffles.values()), sum(each.files for each in shuffles.values())
            ),
            heapq.nlargest(shuffles_max, shuffles.items(), key=lambda item: item[1]),
        )
        for instance, shuffles in applications.items()
    )
    return heapq.nlargest(applications_max, told, key=lambda each: each.held)
