"""Decides what may be deleted because the masters do not know it. Called by server/registration.py.

Rules: only on the word of a leader that confirmed its term (CheckShuffles is answered by no other), of the same
cluster, whose state is not older than anything this worker has heard of. An older state means that the cluster was
restored from a backup: then nothing is deleted, and people are told. Silence never deletes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.common.ids import RaftIndex, ShuffleKey

#: Keys in one question.
BATCH_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to delete, and what is wrong if anything is."""

    delete: tuple[ShuffleKey, ...]
    problem: str = ""


def batches(keys: Sequence[ShuffleKey]) -> Iterator[Sequence[ShuffleKey]]:
    """Split the keys on disk into questions of bounded size."""
    for start in range(0, len(keys), BATCH_KEYS_MAX):
        yield keys[start : start + BATCH_KEYS_MAX]


def judge(
    *,
    asked: Sequence[ShuffleKey],
    highest_when_asked: RaftIndex,
    cluster_id: str,
    answer_unknown: Sequence[ShuffleKey],
    answer_cluster_id: str,
    answer_index: RaftIndex,
) -> Verdict:
    """Decide on one answer of CheckShuffles.

    `highest_when_asked` is the highest Raft index this worker had heard of *before* it asked: files of every asked key
    were opened by then, and MAP_OPEN carried the index of their registration. A newly registered shuffle is therefore
    never unknown to a state of at least that index.
    """
    if answer_cluster_id != cluster_id:
        return Verdict((), f"the masters say they are cluster {answer_cluster_id!r}, this worker is of {cluster_id!r}")
    if answer_index < highest_when_asked:
        return Verdict(
            (),
            f"the masters are at index {answer_index}, this worker has seen {highest_when_asked}: the cluster was "
            "restored from an older state, so nothing is deleted; forget by hand what is really gone",
        )
    known = set(asked)
    return Verdict(tuple(key for key in answer_unknown if key in known))
