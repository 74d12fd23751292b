"""Decides what may be deleted because the masters have dropped it. Called by membership/registration.py.

Rules: only on the word of a leader that confirmed its term (CheckShuffles is answered by no other), of the same
cluster, that remembers having dropped it. Masters restored from a backup know nothing of what came after the backup,
also once their log has grown past everything this worker has seen; so what they never heard of is kept, and people are
told. Nothing is deleted on the
word of another state than the one with which this worker registered, nor of one below what it has seen: that one is
older for sure. Silence never
deletes anything. See docs/internals/adr/0010-only-what-was-dropped-is-deleted.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.common.ids import RaftIndex, ShuffleKey, StateId

#: Keys in one question.
BATCH_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ForgetVerdict:
    """What to delete, and what is wrong if anything is."""

    delete: tuple[ShuffleKey, ...]
    problem: str = ""
    #: these masters are not to be believed at all
    stop: bool = False


def batches(keys: Sequence[ShuffleKey]) -> Iterator[Sequence[ShuffleKey]]:
    """Split the keys on disk into questions of bounded size."""
    for start in range(0, len(keys), BATCH_KEYS_MAX):
        yield keys[start : start + BATCH_KEYS_MAX]


def judge(
    *,
    asked: Sequence[ShuffleKey],
    highest_when_asked: RaftIndex,
    state: StateId,
    cluster_id: str,
    answer_dropped: Sequence[ShuffleKey],
    answer_unheard: Sequence[ShuffleKey],
    answer_cluster_id: str,
    answer_index: RaftIndex,
    answer_state: StateId,
) -> ForgetVerdict:
    """Decide on one answer of CheckShuffles.

    `state` is the one that gave this worker its number, and `highest_when_asked` the highest Raft index with which
    masters had answered this worker *before* it asked, every heartbeat among them: a lower one in this answer is of an
    older state for sure.
    """
    problem = ""
    if answer_cluster_id != cluster_id:
        problem = f"the masters are of cluster {answer_cluster_id!r}, this worker is of {cluster_id!r}"
    elif answer_state != state:
        problem = (
            "the masters were restored from a backup since this worker registered, so nothing is deleted until it has "
            "registered anew"
        )
    elif answer_index < highest_when_asked:
        problem = (
            f"the masters are at index {answer_index}, this worker has seen {highest_when_asked}: the cluster was "
            "restored from an older state, so nothing is deleted"
        )
    if problem:
        return ForgetVerdict((), problem, stop=True)
    known = set(asked)
    if answer_unheard:
        one = answer_unheard[0]
        problem = (
            f"the masters do not know {len(answer_unheard)} shuffles that this worker has, such as {one}: they were "
            "restored from an older state, or forgot a very old application. The data is kept; "
            f"`holdfast forget {one.instance.hex()}` deletes it"
        )
    return ForgetVerdict(tuple(key for key in answer_dropped if key in known), problem)
