"""Applies what moves REDUCE partitions to new epochs, and what copies of old ones lack; says what a worker's restart
means for these.

Called by apply.py, whose rules hold here too; `vouches` and `has_kept` by seals.py.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.common.formats.messages import Ack
from holdfast.common.limits import EPOCHS_MAX
from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.incomplete import pack_incomplete, unpack_marks
from holdfast.master.core.state.moves import (
    Moved,
    add_segment,
    count_moves,
    epoch_of,
    moved_bytes,
    pack_moved,
    unpack_moves,
)
from holdfast.master.core.state.records import KIND_REDUCE, Answer, Shuffle, Worker
from holdfast.master.core.state.state import State


def revive(state: State, shuffle: Shuffle, body: cmd.Revive) -> Answer:
    """Make the next epoch of each partition whose failed epoch is its newest. The shuffle is there."""
    if (refusal := _not_open(shuffle)) is not None:
        return refusal
    try:
        asked = count_moves(body.rows, shuffle.copies_wanted)
    except ValueError as error:
        return Answer(Status.BAD_REQUEST, str(error))
    if asked > bounds.MOVES_PER_COMMAND_MAX:
        return Answer(Status.TOO_LARGE, f"one command makes at most {bounds.MOVES_PER_COMMAND_MAX} epochs, not {asked}")
    made = _made(state, shuffle, body)
    if made and (refusal := _no_room(state, shuffle, len(made))) is not None:
        return refusal
    if made:
        state.put_shuffle(replace(shuffle, moves=add_segment(shuffle.moves, made.values())))
        state.newest.setdefault(shuffle.key, {}).update(made)
    return Answer(value=len(made))


def mark_incomplete(state: State, shuffle: Shuffle, body: cmd.MarkIncomplete) -> Answer:
    """Mark copies that lack something. The shuffle is there."""
    if (refusal := _not_open(shuffle)) is not None:
        return refusal
    try:
        marks = unpack_marks(body.rows)
    except ValueError as error:
        return Answer(Status.BAD_REQUEST, str(error))
    if len(marks) > bounds.MOVES_PER_COMMAND_MAX:
        return Answer(Status.TOO_LARGE, f"one command marks at most {bounds.MOVES_PER_COMMAND_MAX} copies")
    known = state.incomplete.get(shuffle.key, {})
    made: dict[tuple[int, int], frozenset[int]] = {}
    fresh = []
    for mark in marks:
        epoch = mark.partition, mark.epoch
        those = made.get(epoch) or known.get(epoch, frozenset())
        if mark.worker in those:
            continue
        if len(those) >= mark.most:
            text = f"{shuffle.key} partition {mark.partition} epoch {mark.epoch}: too few copies have all of it"
            return Answer(Status.REPLICA_FAILED, f"{text}, {len(those)} others lack something")
        made[epoch] = those | {mark.worker}
        fresh.append(mark)
    more = pack_incomplete(fresh)
    if more and state.array_bytes + len(more) > bounds.ARRAY_BYTES_MAX:
        return _masters_full(state)
    if more:
        state.put_shuffle(replace(shuffle, incomplete=shuffle.incomplete + more))
        state.incomplete.setdefault(shuffle.key, {}).update(made)
    return Answer(value=len(fresh))


def _not_open(shuffle: Shuffle) -> Answer | None:
    if shuffle.kind != KIND_REDUCE:
        return Answer(Status.BAD_REQUEST, f"{shuffle.key} has MAP partitions, which are not revived")
    if shuffle.committed_ms:
        return Answer(Status.COMMITTED, f"{shuffle.key} is committed; nothing more is pushed into it")
    return None


def move_epochs(state: State, body: cmd.MoveEpochs) -> Answer:
    """Revive in several shuffles; those that refuse are left as they are."""
    made = 0
    for each in body.revives:
        shuffle = state.shuffle(each.key)
        if shuffle is not None:
            made += revive(state, shuffle, each).value
    return Answer(value=made)


def _made(state: State, shuffle: Shuffle, body: cmd.Revive) -> dict[int, bytes]:
    """Return the packed epochs to be made by partition."""
    newest = state.newest.get(shuffle.key, {})
    made: dict[int, bytes] = {}
    for partition, failed, workers, hint in unpack_moves(body.rows, shuffle.copies_wanted):
        last = newest.get(partition)
        epoch = epoch_of(last) if last is not None else 0
        if failed == epoch and partition < shuffle.partitions and partition not in made:
            moved = Moved(partition, failed + 1, workers, hint, state.index)
            made[partition] = pack_moved(moved, shuffle.copies_wanted)
    return made


def _no_room(state: State, shuffle: Shuffle, more: int) -> Answer | None:
    epochs = shuffle.partitions + shuffle.moved
    if epochs + more > EPOCHS_MAX:
        return Answer(Status.NO_ROOM, f"{shuffle.key} had {epochs} epochs, and at most {EPOCHS_MAX} are allowed")
    if state.array_bytes + more * moved_bytes(shuffle.copies_wanted) > bounds.ARRAY_BYTES_MAX:
        return _masters_full(state)
    return None


def _masters_full(state: State) -> Answer:
    return Answer(
        Status.NO_ROOM,
        f"the masters hold {state.array_bytes} bytes of places and winners of {bounds.ARRAY_BYTES_MAX}; unregister or "
        "forget some shuffles first",
    )


def restarted(worker: Worker, placed_index: int) -> bool:
    """Whether this worker has started since that place in the log."""
    return worker.started_index >= placed_index


def vouches(worker: Worker, placed_index: int, ack: int) -> bool:
    """Whether an epoch that was placed on this worker then, and that it does not have, was never acknowledged there.

    A worker that has started since only has what survived: what was in the kernel if the machine did not boot, what
    was synced if no directory was lost. At level MEMORY, too, the first batch of an epoch is written before it is
    acknowledged: whatever was lost of it later, the worker has the epoch, and reports it lost itself.
    """
    if not restarted(worker, placed_index):
        return True
    if ack == Ack.SYNCED:
        return worker.kept_index < placed_index
    return worker.boot_index < placed_index


def has_kept(worker: Worker, placed_index: int, ack: int) -> bool:
    """Whether this worker still has all that it acknowledged of an epoch that was placed on it then."""
    if ack == Ack.MEMORY:
        return not restarted(worker, placed_index)
    return vouches(worker, placed_index, ack)
