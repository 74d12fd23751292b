"""The room of one device, budgeted among the storage directories on it.

Whoever may take little leaves the rest to the others, so that all of it is used and none of it is promised twice
(max-min fairness, Bertsekas and Gallager, Data Networks, section 6.5). Called by storage/disks/directory_states.py.
"""

from __future__ import annotations

from collections.abc import Sequence


def divide(free_bytes: int, limits: Sequence[int]) -> list[int]:
    """Share `free_bytes` among directories that may take up to `limits` each (negative: nothing); in their order.

    The shares add up to all of it, or to all limits if that is less.
    """
    shares = [0] * len(limits)
    left = max(0, free_bytes)
    turns = sorted((max(0, limit), number) for number, limit in enumerate(limits))
    for done, (limit, number) in enumerate(turns):
        shares[number] = min(limit, left // (len(turns) - done))
        left -= shares[number]
    return shares
