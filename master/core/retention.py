"""Why something is still here: which leases keep an application and all below it, and what will delete it.

Rules: pure; silences come from the leader's liveness. Words are for people. Called by api/admin.py and web.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.common.sizes import counted
from holdfast.master.core.state.records import Application, Lease

#: Leases that are listed one by one.
LEASES_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Retention:
    """A sentence, one line for each lease (the first few, the one that ends last first), and what will delete it."""

    sentence: str
    leases: tuple[str, ...]
    deletes: str


def retention_of(application: Application, silence_ms: Callable[[Lease], int], grace_ms: int) -> Retention:
    """Say what keeps an application. `silence_ms`: how long each lease was not renewed."""
    silent = [(lease, max(silence_ms(lease), 0)) for lease in application.leases]
    silent.sort(key=lambda each: each[1] - each[0].lease_ms)
    last, last_silent = silent[0]
    left = last.lease_ms - last_silent
    leases = counted(len(silent), "lease")
    if left > 0:
        sentence = f"{leases}, the last expires in {in_time(left)} unless renewed"
        deletes = f"Deleted {in_time(grace_ms)} after that, or when its application drops it or leaves"
    else:
        sentence = f"{leases}, expired {in_time(-left)} ago; deleted after the grace"
        deletes = f"Deleted in {in_time(max(left + grace_ms, 0))} unless its application renews a lease before"
    named = [_lease(lease, silence) for lease, silence in silent[:LEASES_NAMED_MAX]]
    if len(silent) > LEASES_NAMED_MAX:
        named.append(f"and {len(silent) - LEASES_NAMED_MAX} more leases")
    return Retention(sentence, tuple(named), deletes)


def _lease(lease: Lease, silent_ms: int) -> str:
    left = lease.lease_ms - silent_ms
    ends = f"expires in {in_time(left)}" if left > 0 else f"over since {in_time(-left)}"
    return f"holder {lease.holder.hex()[:8]}: renewed {in_time(silent_ms)} ago, of {in_time(lease.lease_ms)}; {ends}"


def in_time(ms: int) -> str:
    """A span for people, in the two units that matter: "950 ms", "12 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    if ms < 1_000:
        return f"{max(ms, 0)} ms"
    seconds = ms // 1_000
    for unit, small, size, part in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit} {rest} {small}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"
