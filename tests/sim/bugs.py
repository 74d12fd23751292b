"""Mistakes planted on purpose, by name: the simulation must find each of them. None of this is in the product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.client.core.read.chunk_fetch import ChunkFetch
from holdfast.client.core.read.exact import PartitionCheck, _Seen
from holdfast.client.core.write import push as push_module
from holdfast.common.formats.reduce_layouts import EpochResult
from holdfast.common.statuses import MEANINGS, PushDisposition, Status
from holdfast.master.control.sealing import Sealing
from holdfast.master.core import seals as seals_module
from holdfast.master.core.liveness import Liveness
from holdfast.master.core.state import apply as apply_module
from holdfast.master.core.state import epochs as epochs_module
from holdfast.master.core.state import moves as moves_module
from holdfast.master.core.state import workers as workers_module
from holdfast.master.core.state.answers import AnswerTable
from holdfast.master.core.state.commands import Commit
from holdfast.master.core.state.state import State
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.waiters import Waiters
from holdfast.worker.core.forgetting import ForgetVerdict
from holdfast.worker.core.write.credits import Credits
from holdfast.worker.core.write.epochs import Life
from holdfast.worker.core.write.pending_pushes import PendingPushes, When
from holdfast.worker.core.write.reduce import Reduce, epoch_key
from holdfast.worker.core.write.seen_batches import Attempt
from holdfast.worker.server.membership import registration as registration_module
from holdfast.worker.server.services import push_service as push_service_module
from holdfast.worker.server.services.push_service import PushService
from holdfast.worker.server.services.seal_service import SealService
from holdfast.worker.storage.engine.reduce_store import ReduceStore
from holdfast.worker.storage.recovery.reduce_recovery import Left
from tests.sim.control import Control
from tests.sim.copy_bugs import COPY_BUGS
from tests.sim.dfs_bugs import DFS_BUGS
from tests.sim.host_bugs import HOST_BUGS
from tests.sim.map_bugs import MAP_BUGS
from tests.sim.storage_bugs import STORAGE_BUGS
from tests.sim.swap import Mistakes, Swap

BUGS = Mistakes(STORAGE_BUGS | MAP_BUGS | DFS_BUGS | COPY_BUGS | HOST_BUGS)
bug, planted = BUGS.add, BUGS.planted


@bug
def ack_before_write() -> list[Swap]:
    """A push is answered, and written a moment later."""

    def write(self: Any, push: Any, rows: Any, body: Any) -> None:
        self._loop.call_later(0.001, original, self, push, rows, body)

    original = PushService._write
    return [(PushService, "_write", write)]


@bug
def seen_before_answered_ok_with_one_copy() -> list[Swap]:
    """A batch seen before is answered OK at once, whatever becomes of its first arrival."""
    return [(Attempt, "flight_of", lambda self, partition, epoch, number: None)]


@bug
def epoch_reused_after_restart() -> list[Swap]:
    """A new start takes pushes into the epochs of the one before."""

    def past(self: Any, shuffle: Any) -> Any:
        return original(self, shuffle)[0], []

    def refuse(self: Any, push: Any) -> Any:
        refusal = real_refuse(self, push)
        return None if refusal is not None and refusal.status is Status.STALE_INCARNATION else refusal

    original, real_refuse = ReduceStore.past, Reduce.refuse
    return [(ReduceStore, "past", past), (Reduce, "refuse", refuse)]


@bug
def dedupe_off() -> list[Swap]:
    """Readers deliver what comes twice."""

    def note(self: Any, number: int) -> bool:
        original(self, number)
        return True

    original = _Seen.note
    return [(_Seen, "note", note)]


@bug
def last_ignored() -> list[Swap]:
    """Readers do not look whether everything was there."""
    return [(PartitionCheck, "missing", lambda self, *, all_read: "")]


@bug
def commit_names_not_every_epoch() -> list[Swap]:
    """A commit names the newest epochs only, and apply does not look."""

    async def with_epochs(self: Any, shuffle: Any, use: Any) -> Any:
        return use(iter(await self.newest(shuffle)))

    from holdfast.master.control.locations import Locations

    return [
        (Locations, "with_epochs", with_epochs),
        (apply_module, "_epochs_of", lambda shuffle: _AnyNumber()),
    ]


class _AnyNumber(int):
    def __radd__(self, other: int) -> int:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@bug
def revive_during_commit() -> list[Swap]:
    """Epochs are made while a commit is under way, and apply does not look."""
    return [
        (Sealing, "begun", lambda self, key: False),
        (Sealing, "ended", _at_once),
        (apply_module, "_epochs_of", lambda shuffle: _AnyNumber()),
    ]


async def _at_once(self: Any, key: Any, seconds: float) -> None:
    """Nobody waits."""


@bug
def sealed_empty_after_reboot() -> list[Swap]:
    """What a worker does not know after a reboot of its machine is believed to have been empty."""
    return [(seals_module, "vouches", lambda worker, placed_index, ack: True)]


@bug
def left_is_always_vouched_for() -> list[Swap]:
    """What an earlier start left is sealed whatever its level was."""
    return [(Left, "doubt", lambda self, boot_id: "")]


@bug
def replica_acknowledged_alone() -> list[Swap]:
    """A replica that does not answer is no reason not to acknowledge."""

    original = PendingPushes.forwarded
    return [(PendingPushes, "forwarded", lambda self, push, replica, refused: original(self, push, replica, ()))]


@bug
def third_copy_is_not_waited_for() -> list[Swap]:
    """What the second replica of a push did not keep is acknowledged all the same: two copies are a majority."""

    def forwarded(self: Any, push: Any, replica: int, refused: Any) -> Any:
        return original(self, push, replica, () if replica else refused)

    original = PendingPushes.forwarded
    return [(PendingPushes, "forwarded", forwarded)]


@bug
def two_copies_of_three_count_as_all() -> list[Swap]:
    """An epoch is under-replicated where it has one sealed copy, however many were asked for."""

    def under_replicated(self: Any, wanted: int) -> bool:
        return original(self, min(wanted, 2))

    original = EpochResult.under_replicated
    return [(EpochResult, "under_replicated", under_replicated)]


@bug
def every_level_is_memory() -> list[Swap]:
    """Every push is answered before it is written, whatever level it asked for."""

    def when(self: Any, push: Any, *, slow: bool) -> When:
        return When.PROMISED if self.owed is None and push.taken else original(self, push, slow=slow)

    original = PendingPushes.when
    return [(PendingPushes, "when", when)]


@bug
def synced_waits_for_no_disk() -> list[Swap]:
    """A push at SYNCED is answered as soon as it is written."""

    def begin(self: Any, push: Any, now_ns: int, **how: bool) -> Any:
        steps = original(self, push, now_ns, **how)
        if steps is not None and steps.directories:
            push.waits -= len(steps.directories)
            push.syncing.clear()
            steps.directories.clear()
        return steps if push.waits or (steps is not None and steps.chosen) else None

    original = PendingPushes.begin
    return [(PendingPushes, "begin", begin)]


@bug
def loser_delivered() -> list[Swap]:
    """Readers deliver the batches of every attempt."""

    def admit(self: Any, batch: Any) -> bool:
        winner = self._winners.attempts[batch.map]
        return original(self, batch) or batch.attempt != winner

    original = PartitionCheck.admit
    return [(PartitionCheck, "admit", admit)]


@bug
def sealed_accepts_again() -> list[Swap]:
    """An epoch that is sealed is opened anew by the next push."""

    def sealed(self: Any, state: Any) -> None:
        original(self, state)
        found = self.shuffles.get(state.shuffle)
        if found is not None:
            found.closed.clear()

    original = Reduce.sealed
    return [(Reduce, "sealed", sealed)]


@bug
def revived_twice() -> list[Swap]:
    """Every revive makes an epoch, though there is a newer one; the same number is given to two places."""

    def made(state: Any, shuffle: Any, body: Any) -> Any:
        rows = {}
        copies = shuffle.copies_wanted
        for partition, failed, workers, hint in moves_module.unpack_moves(body.rows, copies):
            moved = moves_module.Moved(partition, failed + 1, workers, hint, state.index)
            rows[partition] = moves_module.pack_moved(moved, copies)
        return rows

    return [(epochs_module, "_made", made)]


@bug
def apply_reads_the_clock() -> list[Swap]:
    """Two masters stamp the same commit differently."""
    import time

    original = apply_module._commit

    def commit(state: Any, body: Any) -> Any:
        answer = original(state, body)
        state.time_ms = time.time_ns() // 1_000_000
        return answer

    return [(apply_module, "_APPLY", apply_module._APPLY | {Commit: commit})]


@bug
def long_poll_left_behind() -> list[Swap]:
    """A leader that is none any more leaves its readers waiting."""

    def wake(self: Any, changed: Any) -> None:
        if tuple(changed) != (b"",):
            original(self, changed)

    original = Waiters.wake
    return [(Waiters, "wake", wake)]


@bug
def client_id_shared_after_fork() -> list[Swap]:
    """All clients number their calls under one id."""

    def init(self: Any, network: Any) -> None:
        original(self, network)
        self._client = b"c" * 16

    original = Control.__init__
    return [(Control, "__init__", init)]


@bug
def body_not_checked() -> list[Swap]:
    """A worker takes bodies that the wire has changed."""
    return [(push_service_module, "crc32c", lambda body: _AnyNumber())]


@bug
def commit_waits_for_nobody() -> list[Swap]:
    """A worker that is away is not waited for, though it has the only copy."""
    return [(seals_module.Seals, "covered", lambda self, worker: True)]


@bug
def wiped_directory_vouched_for() -> list[Swap]:
    """A start on other directories counts as one that has kept everything."""

    def record(state: Any, number: int, body: Any) -> Any:
        known = state.workers.get(number)
        made = original(state, number, body)
        return replace(made, kept_index=known.kept_index) if known is not None else made

    original = workers_module._record
    return [(workers_module, "_record", record)]


@bug
def refused_batch_taken_for_kept() -> list[Swap]:
    """A client does not send again what was refused because the epoch is full."""
    wrong = {each: MEANINGS[each]._replace(push=PushDisposition.KEPT) for each in (Status.HARD_SPLIT, Status.NO_ROOM)}
    return [(push_module, "MEANINGS", MEANINGS | wrong)]


@bug
def resent_under_another_epoch_unseen() -> list[Swap]:
    """Readers read the newest epoch of a partition only."""

    def add(self: Any, result: Any, sources: Any) -> None:
        for key in [key for key in sources if key[0] == result.partition]:
            del sources[key]
            self._left[result.partition].discard(key[1])
        original(self, result, sources)

    original = ChunkFetch._add
    return [(ChunkFetch, "_add", add)]


@bug
def unknown_from_a_stale_leader() -> list[Swap]:
    """A master that believes it leads says that something is unknown without proving that it leads."""

    async def confirmed(self: Any, read: Any) -> Any:
        return self.peek(read)

    return [(Leader, "confirmed", confirmed)]


@bug
def sealing_epoch_accepts() -> list[Swap]:
    """An epoch goes on to take pushes while it is sealed, and afterwards."""

    def seal(self: Any, shuffle: Any, final: bool, epochs: Any) -> Any:
        found = self.shuffles.get(shuffle)
        return [found.epochs.get(epoch_key(*one)) if found is not None else None for one in epochs]

    return [(Reduce, "seal", seal)]


@bug
def replica_traffic_without_reserve() -> list[Swap]:
    """Replica traffic waits for the credit that clients have, whose pushes wait for replicas."""
    return [(PushService, "_credits_of", lambda self, role: self.credits)]


@bug
def id_reused_after_forget() -> list[Swap]:
    """The masters forget which instances there were: one that is over is registered again."""

    def drop(self: Any, instance: bytes) -> int:
        dropped = original(self, instance)
        del self.gone[instance]
        return dropped

    original = State.drop_application
    return [(State, "drop_application", drop)]


@bug
def generation_reused_after_unregister() -> list[Swap]:
    """A generation that was dropped is opened again."""

    def check(state: Any, body: Any) -> None:
        try:
            original(state, body)
        except apply_module._RefusedError as refused:
            if "was dropped" not in refused.answer.detail:
                raise

    original = apply_module._check_generation
    return [(apply_module, "_check_generation", check)]


@bug
def retried_call_applied_again() -> list[Swap]:
    """The masters do not remember what they have answered."""
    return [(AnswerTable, "recall", lambda self, command: None)]


@bug
def older_generation_deleted() -> list[Swap]:
    """When a generation opens, workers are told to delete the one before."""

    def dropped(self: Any, key: Any) -> bool:
        head = self.head(key.instance, key.shuffle)
        return original(self, key) or (head is not None and key.generation < head)

    original = State.dropped
    return [(State, "dropped", dropped)]


@bug
def dropped_and_never_deleted() -> list[Swap]:
    """A worker keeps what the masters have dropped."""
    return [(registration_module, "judge", lambda **answer: ForgetVerdict(()))]


@bug
def lease_ends_though_renewed() -> list[Swap]:
    """The masters do not hear renewals."""
    return [(Liveness, "heard_lease", lambda self, now, application, holder: None)]


@bug
def chunk_number_kept_for_the_other_copy() -> list[Swap]:
    """A reader that goes on with the other copy of an epoch asks for the chunk that was due of the first."""

    def first_chunk(self: Any, key: Any, worker: Any) -> int:
        return max((number for (each, _), number in self._next.items() if each == key), default=0)

    return [(ChunkFetch, "first_chunk", first_chunk)]


@bug
def small_window_kept_in_line() -> list[Swap]:
    """Who asks for a larger window keeps what he has while he waits, behind one who needs just that."""

    def ask(self: Any, connection: int, size: int, now_ns: int) -> Any:
        before = self.window(connection)
        granted = original(self, connection, size, now_ns)
        if not granted and connection in self._line:
            self._resize(self._windows[connection], before)
        return granted

    original = Credits.ask
    return [(Credits, "ask", ask)]


@bug
def failed_whatever_it_was() -> list[Swap]:
    """What failed before, or is sealed, fails again: an illegal move within a push, which is answered all the same."""
    return [(Reduce, "broke", lambda self, state: state.become(Life.FAILED))]


@bug
def start_seals_before_it_is_accepted() -> list[Swap]:
    """A worker answers seals whether or not the masters have accepted this start of it."""

    def seal(self: Any, request: Any) -> None:
        accepted, self._standing.registered = self._standing.registered, True
        original(self, request)
        self._standing.registered = accepted

    original = SealService.seal
    return [(SealService, "seal", seal)]
