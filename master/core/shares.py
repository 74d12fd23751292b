"""How much of what all users share one user has, and when that is more than one may have.

Rules: pure, derived from the tables. One user alone never fills what the masters hold: a part of it is left for the
others. Looked at where something new begins, an application or a shuffle; what has begun is never refused. Called by
state.py, which counts, and service/quotas.py, which refuses.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.sizes import counted, in_bytes
from holdfast.master.core import bounds


@dataclass(slots=True)
class Share:
    """What one user has: applications, shuffle generations, and bytes of their assignments, moves and winners."""

    applications: int = 0
    shuffles: int = 0
    array_bytes: int = 0

    @property
    def nothing(self) -> bool:
        """Whether there is no need to remember it."""
        return not (self.applications or self.shuffles or self.array_bytes)


def too_many_applications(user: str, share: Share) -> str:
    """Say why the user gets no more applications, "" if more may come."""
    if share.applications < bounds.APPLICATIONS_PER_USER_MAX:
        return ""
    return f'user "{user}" has {counted(share.applications, "application")}, and may have no more; forget some first'


def too_many_shuffles(user: str, share: Share) -> str:
    """Say why the user gets no more shuffles, "" if more may come."""
    if share.shuffles >= bounds.SHUFFLES_PER_USER_MAX:
        held = counted(share.shuffles, "shuffle")
    elif share.array_bytes >= bounds.ARRAY_BYTES_PER_USER_MAX:
        held = f"{in_bytes(share.array_bytes)} of places and winners of shuffles"
    else:
        return ""
    return f'user "{user}" has {held}, and may have no more; unregister shuffles or end applications first'
