"""Sizes and numbers for people, the same in errors, in logs and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.common.config.settings import SIZE_UNITS


def in_bytes(count: float) -> str:
    """`count` bytes for people: "1.5 MiB"."""
    for unit, factor in sorted(SIZE_UNITS.items(), key=lambda item: -item[1]):
        if count >= factor > 1:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


def counted(count: int, noun: str) -> str:
    """So many of something for people: "1 file", "2 files", "3 copies"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def skew(largest_bytes: int, median_bytes: int) -> float | None:
    """How many times as large as the median the largest partition is; None where at least half of them are empty."""
    return largest_bytes / median_bytes if median_bytes else None


def fewer_copies(epochs: int, awaited: int) -> str:
    """Epochs with fewer copies than asked for, and what becomes of them; `awaited` of them have a copy on a worker that
    seals it when it is back."""
    stay = epochs - awaited
    later = "the missing copies are sealed once their workers can"
    if awaited and stay:
        later = f"of {awaited} {later}"
    kept = f"{stay if awaited else 'that'} {'stays' if stay == 1 or not awaited else 'stay'} so"
    parts = [each for each, number in ((later, awaited), (kept, stay)) if number]
    have = "has" if epochs == 1 else "have"
    return f"{counted(epochs, 'epoch')} {have} fewer copies than asked for: {'; '.join(parts)}"


def shuffle_failures(
    lost: int,
    lost_partitions: Sequence[int],
    partitions_lost: int,
    under_replicated: int,
    awaited: int,
    incomplete: int,
) -> list[str]:
    """What is missing of a shuffle, in sentences; `lost_partitions` are the first of those with lost epochs."""
    found = []
    if lost:
        more = f" and {partitions_lost - len(lost_partitions)} more" if partitions_lost > len(lost_partitions) else ""
        which = f" of partitions {', '.join(map(str, lost_partitions))}{more}" if lost_partitions else ""
        found.append(f"data is lost: {counted(lost, 'epoch')}{which}")
    if under_replicated:
        found.append(fewer_copies(under_replicated, awaited))
    if incomplete:
        lack = "lacks" if incomplete == 1 else "lack"
        found.append(f"{counted(incomplete, 'copy')} {lack} acknowledged data; readers use others")
    return found


def not_adhering(strict: int, soft: int, failed: int) -> str:
    """Open partitions whose copies do not stand as placement wishes, of all."""
    softly = f", and {soft} only softly" if soft else ""
    return f"{failed} of {counted(strict + soft + failed, 'open partition')} not as placement wishes{softly}"


def short_of_copies(epochs: int, coming: int, restore_in_s: int) -> str:
    """Epochs with fewer copies than asked for on workers that are there, and what is done about it: `coming` copies are
    being made, and in so many seconds what a lost worker had is copied again (0: nobody is waited for)."""
    having = f"{counted(epochs, 'epoch')} {'is' if epochs == 1 else 'are'} short of copies"
    waiting = f"a lost worker is waited for, for {restore_in_s} s more" if restore_in_s > 0 else ""
    parts = [f"{counted(coming, 'copy')} {'is' if coming == 1 else 'are'} being made" if coming else "", waiting]
    return f"{having}: {'; '.join(filter(None, parts)) or 'their workers are awaited, or no host can take more'}"


def open_short_of_copies(epochs: int) -> str:
    """Epochs of open shuffles with fewer copies than asked for that are whole, on workers which are there. The masters
    do not know whether there is anything in them."""
    having = (
        f"{counted(epochs, 'epoch')} of open shuffles {'has' if epochs == 1 else 'have'} fewer copies than asked for"
    )
    return f"{having}; of those with data the missing ones are made again after the commit"


#: What `reach` of a drain says in a word.
_READY = {
    "reached": "ready",
    "in time": "ready in time",
    "late": "not ready in time",
    "unknown": "not known yet whether ready in time",
}


def goes_away(left: str, reach: str) -> str:
    """When the host of a worker goes away, and whether nothing is needed there by then; `left`: how long it takes, ""
    where the time is over."""
    when = f"goes away in {left}" if left else "was to be away by now"
    return f"its host {when}: {_READY[reach]}"


class UsageTotals(NamedTuple):
    """Bytes and files that a shuffle (all generations) or an application holds."""

    size_bytes: int = 0
    files: int = 0

    def plus(self, other: UsageTotals, sign: int = 1) -> UsageTotals:
        """The sum, or with sign -1 the difference."""
        return UsageTotals(self.size_bytes + sign * other.size_bytes, self.files + sign * other.files)
