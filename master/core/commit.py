"""Decides one commit of REDUCE partitions: what each worker is asked for, when it is asked again, which workers it
skips, when enough was said, and the final word.

Rules
* How long a worker is waited for is decided by patience.py: `worker.copy_grace` where there is another copy,
  `worker.return_grace` for an only one, five times as long while it is busy or full. Then the commit fails, and nothing
  is said, so it can be asked for again.
* A copy that was not sealed in time is UNAVAILABLE in the manifest.

Pure; times are monotonic nanoseconds. Driven by master/control/sealing.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.common.errors import ConflictError, HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.reduce_layouts import ReduceManifest
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.limits import SEAL_EPOCHS_MAX
from holdfast.common.statuses import Status
from holdfast.master.core.patience import BUSY_GRACES, Patience
from holdfast.master.core.seals import EpochKey, Seals, tally, without_unwritten
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.incomplete import incomplete_count
from holdfast.master.core.state.records import Shuffle, Worker

#: What a worker says that has the data and cannot seal it now.
_BUSY = frozenset({Status.DISK_FULL, Status.BUSY})


@dataclass(frozen=True, slots=True)
class Seen:
    """What a winners array holds; of MAP partitions also what the winners name: workers, bytes, and how many wrote
    anything to one worker alone, to two, and so on. Of REDUCE partitions `written` has bit p (byte p // 8, bit p % 8)
    set if a winner wrote for partition p, where the committer said so."""

    maps: int
    partitions: int
    digest: bytes
    data_bytes: int = 0
    by_copies: tuple[int, ...] = ()
    written: bytes | None = None
    workers: frozenset[int] = frozenset()


def is_committed(shuffle: Shuffle, seen: Seen) -> bool:
    """Whether the shuffle is committed with these winners. Raises ConflictError if they do not fit it."""
    if shuffle.committed_ms:
        if shuffle.winners_digest == seen.digest:
            return True
        raise ConflictError(f"{shuffle.key} is committed with other winners; a commit is final")
    if misfit := shuffle.misfit(seen.maps, seen.partitions):
        raise ConflictError(misfit)
    return False


class SealRound:
    """Asking all workers of one shuffle, until enough of them have answered or are skipped."""

    def __init__(self, shuffle: Shuffle, seals: Seals, copy_grace_ns: int, return_grace_ns: int) -> None:
        self._shuffle = shuffle
        self._seals = seals
        self.workers = seals.unanswered
        self._patience = {number: Patience(copy_grace_ns, return_grace_ns) for number in self.workers}

    @property
    def unanswered(self) -> list[int]:
        """Workers that have something to answer and were not skipped."""
        return self._seals.unanswered

    def ask(self, number: int, now: int) -> list[EpochKey]:
        """Return what to ask this worker for now; nothing once it has said everything."""
        missing = self._seals.missing(number, SEAL_EPOCHS_MAX)
        if missing:
            self._patience[number].asks(now)
        return missing

    def answered(self, worker: Worker, wanted: Sequence[EpochKey], answers: Sequence[SealedEpoch]) -> None:
        """Take what this start of a worker said. Raises ProtocolError if it is about nothing that was wanted."""
        self._seals.heard(worker, self._shuffle.ack, wanted, answers)
        self._patience[worker.id].answered()

    def failed(self, worker: Worker, error: HoldfastError, silence: int | None, now: int) -> float | None:
        """Return after how many seconds a worker that gave no answer is asked again; None: the commit skips it.

        `silence` is how long it sent no heartbeat; None of one that the masters call alive. Raises NoRoomError if it is
        needed and had no room for very long, RetryError (BUSY) if it could not seal for another reason.
        """
        patience = self._patience[worker.id]
        assert patience.asked, f'worker "{worker.name}" fails its requests'
        patience.was_full |= error.status is Status.DISK_FULL
        if error.status in _BUSY:
            patience.was_busy(now)
        else:
            patience.failed(now)
        if patience.gone(silence, now) or (patience.spent(now) and self._seals.covered(worker.id)):
            self._seals.give_up(worker.id)
            return None
        if patience.spent(now):
            text = (
                f'{self._shuffle.key} is not committed: worker "{worker.name}" could not seal its data for '
                f"{BUSY_GRACES * patience.return_grace_ns // 10**9} s ({error}). No data is lost: repair that "
                "worker, and commit again."
            )
            raise NoRoomError(text) if patience.was_full else RetryError(text, status=Status.BUSY)
        return patience.pause()

    def left_s(self, silences: Mapping[int, int], now: int) -> float | None:
        """Return the seconds until a worker is not waited for any more where there are other copies; 0 if enough was
        said, None if nothing but an answer changes anything. `silences` are those of the unanswered workers."""
        left_at = {number: self._patience[number].left_at(silence, now) for number, silence in silences.items()}
        if self._seals.enough([number for number, at in left_at.items() if at <= now]):
            return 0.0
        return min([(at - now) / 1e9 for at in left_at.values() if at > now], default=None)


class FinalWord:
    """What is said of the epochs; takes long where they are many."""

    def __init__(self, shuffle: Shuffle, seen: Seen, seals: Seals) -> None:
        self._key, self._seen = shuffle.key, seen
        self._incomplete = incomplete_count(shuffle.incomplete)
        results = tuple(without_unwritten(seals.results(), seen.written))
        self.tally = tally(results, shuffle.copies_wanted)
        assert self.tally.epochs == len(seals), "every epoch gets one result"
        self.manifest = ReduceManifest(seen.partitions, results).encode()

    def command(self, winners: bytes, upload: bytes) -> cmd.Commit:
        """Return the command that says it; winners and manifest are within, unless they were uploaded."""
        return cmd.Commit(
            key=self._key,
            winners=b"" if upload else winners,
            upload=upload,
            winners_digest=self._seen.digest,
            maps=self._seen.maps,
            partitions=self._seen.partitions,
            manifest=b"" if upload else self.manifest,
            manifest_bytes=len(self.manifest),
            incomplete=self._incomplete,
            **self.tally._asdict(),
        )
