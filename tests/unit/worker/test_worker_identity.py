"""What a worker keeps of its place in the cluster, over real directories."""

import threading
from pathlib import Path

from holdfast.common.ids import Incarnation, RaftIndex, StateId, WorkerId
from holdfast.worker.server.membership.worker_identity import (
    IdentityKeeper,
    KeptIdentity,
    WorkerIdentity,
    directory_paths,
)
from holdfast.worker.storage.env.system_files import SystemFiles
from tests.unit.worker.storage.reduce_world import World

FILES = SystemFiles()


def test_a33_what_was_kept_last_counts(tmp_path: Path) -> None:
    """A directory hangs while a state of the masters that was restored gives this worker another number. It still has
    what the old state said, with a higher Raft index: what was written last counts, in this start and the next."""
    world, gate = World(tmp_path, directories=2), threading.Event()
    standing = WorkerIdentity("c", "w", Incarnation(1))
    keeper = IdentityKeeper(world.store, FILES, standing)
    standing.given(WorkerId(3), StateId(1), RaftIndex(900))
    for write in keeper.keep():
        write.result(30)
    hung, well = world.store._directories
    hung.lane.submit(gate.wait, 60)
    standing.given(WorkerId(5), StateId(2), RaftIndex(4))
    (_, write) = keeper.keep()
    write.result(30)
    kept = KeptIdentity.read(FILES, directory_paths(world.store))
    assert (kept.worker, kept.state, kept.raft_index) == (5, 2, 4)

    later = WorkerIdentity("c", "w", Incarnation(2))  # the process was killed; the first directory is slow again
    later.given(kept.worker, kept.state, kept.raft_index)
    later.saw(RaftIndex(6))
    for _, write in zip(world.store.lanes(), IdentityKeeper(world.store, FILES, later).keep(), strict=True):
        if not write.done():
            gate.set()
        write.result(30)
    KeptIdentity.of(standing, change=9).write(FILES, hung.root)
    assert KeptIdentity.read(FILES, [hung.root, well.root]).raft_index == 6
    world.store.close()


def test_what_knows_nothing_is_not_kept(tmp_path: Path) -> None:
    """A worker that could not read what it knew writes nothing over it before the masters have answered."""
    world = World(tmp_path)
    (path,) = directory_paths(world.store)
    KeptIdentity(WorkerId(3), RaftIndex(900), StateId(1), Incarnation(1), 7).write(FILES, path)
    assert IdentityKeeper(world.store, FILES, WorkerIdentity("c", "w", Incarnation(2))).keep() == []
    assert KeptIdentity.read(FILES, [path]).worker == 3
    world.store.close()
