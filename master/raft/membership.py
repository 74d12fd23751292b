"""With which masters this one may run: a change of the settings by which two leaders could be elected is refused.

While masters are restarted with other peers, some go by the list of before and some by the next one. A majority of the
one and a majority of the other share a master as long as one is added or one is taken out; else each list may have a
leader of its own. So a master remembers on which list all agreed last, and takes one that differs by one master, if no
other change is under way. They have agreed on it once all of them are connected, all have it, and an entry of the
present term is committed: what was committed before is on a majority of them then.

Rules: what is remembered is one small file, written whole and synced. Called by node.py, on the Raft thread.
Source: Diego Ongaro, "Consensus: Bridging Theory and Practice", 4.1 (changes of a single server).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path

from holdfast.common.system.files import write_whole
from holdfast.master.raft.errors import SettingsRefused, StorageFailed

MEMBERS = "members"
_DIGEST_BYTES = 8
Names = frozenset[str]
NOBODY: Names = frozenset()


def digest(members: Iterable[str]) -> str:
    """By what two masters compare their lists."""
    return hashlib.blake2b("\n".join(sorted(members)).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def refusal(agreed: Names, following: Names, now: Names) -> str:
    """Say why a master may not run with the list of `now`; "" if it may. `agreed`: the list on which all agreed last,
    nobody before the first time; `following`: one that was begun with since."""
    begun = following or agreed
    if now in (agreed, following) or not begun or (not following and len(agreed ^ now) == 1):
        return ""
    if not agreed:
        return (
            f"[master] peers are {_named(now)}; this master began with {_named(following)} and has not met all of them "
            "yet: start it with these, or with an empty directory"
        )
    under_way = f", and a change to {_named(following)} is under way" if following else ""
    return (
        f"[master] peers are {_named(now)}; the masters agreed last on {_named(agreed)}{under_way}. Two leaders could "
        "be elected, each by a majority of its own list: add or take out one master at a time, restart all with that, "
        "and wait until all log raft.members_agreed before the next: docs/operate/operations.md"
    )


def _named(members: Collection[str]) -> str:
    return ", ".join(sorted(members))


class Membership:
    """What one master remembers."""

    def __init__(self, directory: Path, now: Collection[str]) -> None:
        """Raises SettingsRefused for a list with which it may not run, StorageFailed."""
        self._file, self._now = directory / MEMBERS, frozenset(now)
        agreed, following = self._read()
        if problem := refusal(agreed, following, self._now):
            raise SettingsRefused(problem)
        #: whether all have agreed on the list of now
        self.settled = agreed == self._now
        if not self.settled and following != self._now:
            self._keep(agreed, self._now)

    def agree(self) -> None:
        """All are connected, have this list, and have committed something. Raises StorageFailed."""
        self._keep(self._now, NOBODY)
        self.settled = True

    def _read(self) -> tuple[Names, Names]:
        try:
            kept = json.loads(self._file.read_text("utf-8"))
            return frozenset(map(str, kept["agreed"])), frozenset(map(str, kept["following"]))
        except FileNotFoundError:
            return NOBODY, NOBODY
        except OSError as error:
            raise StorageFailed(f"cannot read {self._file}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsRefused(
                f"{self._file} is damaged: remove it if [master] peers have not changed since the last start"
            ) from error

    def _keep(self, agreed: Names, following: Names) -> None:
        kept = json.dumps({"agreed": sorted(agreed), "following": sorted(following)})
        try:
            write_whole(self._file, f"{kept}\n".encode(), 0o600)
        except OSError as error:
            raise StorageFailed(f"{self._file} takes no write: {error.strerror}") from error
