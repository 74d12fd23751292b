"""Mistakes planted in real processes, by name: each takes away one safety, and a drill or the consistency harness must
find it.

A function gets the role of the process that it is in, and patches what that process is going to run. None of this is in
the product. Loaded by plant/sitecustomize.py in servers that a test starts.
"""

from __future__ import annotations

import errno
import itertools
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any


def nobody_stands_for_election(role: str) -> None:
    """A follower that has heard of a leader never stands: nobody takes over."""
    if role != "master":
        return
    from holdfast.master.raft import library, member

    def tick(self: Any) -> None:
        if self.raft.role != library.LEADER and self.raft.leader_id is not None:
            self.heard = True
        if getattr(self, "heard", False) and self.raft.role == library.FOLLOWER:
            self.raft.postpone_election()
        original(self)

    original = member.RaftMember.tick
    member.RaftMember.tick = tick  # type: ignore[method-assign]


def answers_without_proof(role: str) -> None:
    """A master answers from memory, whether it leads or not."""
    if role != "master":
        return
    from holdfast.master.leader import leader

    async def confirmed(self: Any, read: Any) -> Any:
        return self.node.local(lambda machine: read(machine.state))

    leader.Leader.confirmed = confirmed  # type: ignore[method-assign]
    leader.Leader.require = lambda self, term=0: None  # type: ignore[method-assign]


def copies_count_before_they_are_made(role: str) -> None:
    """The leader calls a copy sealed as soon as it has a place, and has it made by nobody."""
    if role != "master":
        return
    from tests.sim.copy_bugs import place_of_a_copy_counts_as_one

    for owner, name, placed in place_of_a_copy_counts_as_one():
        setattr(owner, name, placed)


def acknowledged_before_the_journal(role: str) -> None:
    """Votes and entries leave before they are on the disk; and they never get there."""
    if role != "master":
        return
    from holdfast.master.raft.journal import Journal

    Journal.sync = lambda self: None  # type: ignore[method-assign]


def seal_answered_before_it_is_done(role: str) -> None:
    """A worker answers a seal at once, and seals half a second later."""
    if role != "worker":
        return
    from holdfast.common.formats.messages import MapSeal, MapSealed
    from holdfast.worker.server.services import map_service

    def seal(self: Any, request: Any) -> None:
        totals = MapSeal.decode(request.meta).totals
        request.reply(MapSealed(totals=totals, incarnation=self.files.incarnation).encode())
        self._loop.call_later(0.5, original, self, request._replace(connection=_Mute()))

    original = map_service.MapService.seal
    map_service.MapService.seal = seal  # type: ignore[method-assign]


class _Mute:
    """A connection on which nothing is said."""

    def reply(self, *_: Any) -> None:
        """Say nothing."""

    refuse = reply

    def owner_of(self, instance: bytes) -> tuple[bytes, ...]:
        """Whose share it takes of."""
        return (instance,)


def acknowledged_before_the_write(role: str) -> None:
    """A worker answers a push at once, and writes a moment later."""
    if role != "worker":
        return
    from holdfast.worker.server.services.push_service import PushService

    def write(self: Any, push: Any, rows: Any, body: Any) -> None:
        kept = (memoryview(bytes(rows)), memoryview(bytes(body)))
        self._loop.call_later(0.3, original, self, push, *kept)

    original = PushService._write
    PushService._write = write  # type: ignore[method-assign]


def enospc_taken_for_success(role: str) -> None:
    """A worker does not look how much room there is, and a write for which there is none is taken for done."""
    if role != "worker":
        return
    from holdfast.worker.server.services.faults import FaultyFiles
    from holdfast.worker.storage.env.system_files import SystemFiles

    def forgiving(original: Any) -> Any:
        def write(*given: Any) -> None:
            try:
                original(*given)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

        return write

    FaultyFiles.write = forgiving(FaultyFiles.write)  # type: ignore[method-assign]
    FaultyFiles.write_parts = forgiving(FaultyFiles.write_parts)  # type: ignore[method-assign]
    FaultyFiles.file_system = SystemFiles.file_system  # type: ignore[method-assign]


def windows_without_a_bound(role: str) -> None:
    """A worker grants every client all that it wants, and has memory for it."""
    if role != "worker":
        return
    from holdfast.common.net.frames.buffers import BufferPool
    from holdfast.worker.core.write.credits import Credits

    def more(self: Any) -> None:
        self.budget_bytes, self.window_bytes_max, self.standing_bytes = 1 << 40, 1 << 30, None

    def much(self: Any) -> None:
        self.budget_bytes = 1 << 40

    Credits.__post_init__ = more  # type: ignore[method-assign]
    BufferPool.__post_init__ = much  # type: ignore[method-assign]


def leases_by_the_clock_of_the_day(role: str) -> None:
    """A leader judges silence by a clock that jumps, and gives nobody a full lease when it did."""
    if role != "master":
        return
    from holdfast.master.core import liveness
    from holdfast.master.leader.leader import Leader

    Leader.now_ns = lambda self: self.now_ms() * 1_000_000  # type: ignore[method-assign]
    liveness._LATE_TICKS = 1 << 60


def leases_end_at_once(role: str) -> None:
    """A leader ends a lease as soon as its holder is silent for a moment, without any grace."""
    if role != "master":
        return
    from holdfast.master.core.liveness import Liveness

    def judge(self: Any, now: int, leases: Any) -> Any:
        self._timing = replace(self._timing, grace_ns=0)
        return original(self, now, {ref: replace(lease, lease_ms=1) for ref, lease in leases.items()})

    original = Liveness._judge_leases
    Liveness._judge_leases = judge  # type: ignore[method-assign]


def nothing_left_after_a_start(role: str) -> None:
    """A worker that starts again has lost its files."""
    if role != "worker":
        return
    import sys

    config = tomllib.loads(Path(sys.orig_argv[-1]).read_text("utf-8"))
    for directory in config["worker"]["directories"]:
        for path in (Path(directory["path"]) / "data").rglob("*.*"):
            if path.is_file():
                path.unlink()


def acknowledged_without_writing(role: str) -> None:
    """A worker forgets every twentieth push, and answers it."""
    if role != "worker":
        return
    from holdfast.worker.server.services.push_service import PushService

    pushes = itertools.count(1)

    def write(self: Any, *given: Any) -> None:
        if next(pushes) % 20:
            original(self, *given)

    original = PushService._write
    PushService._write = write  # type: ignore[method-assign, assignment]


def nobody_counts(role: str) -> None:
    """Pushes are forgotten, and no reader looks whether anything is missing: rows vanish without a word."""
    acknowledged_without_writing(role)
    if role == "client":
        from holdfast.client.core.read.exact import PartitionCheck

        PartitionCheck.missing = lambda self, *, all_read: ""  # type: ignore[method-assign]


def losers_are_read(role: str) -> None:
    """A reader takes what any attempt has pushed."""
    if role != "client":
        return
    from holdfast.client.core.read.exact import PartitionCheck

    PartitionCheck.admit = lambda self, batch: batch.totals is None  # type: ignore[method-assign]
    PartitionCheck.missing = lambda self, *, all_read: ""  # type: ignore[method-assign]


def a_commit_forgets_an_epoch(role: str) -> None:
    """The masters call the last epoch of a generation empty, whatever the workers have sealed of it."""
    if role != "master":
        return
    from holdfast.common.statuses import Status
    from holdfast.master.core.seals import Seals

    def results(self: Any) -> Any:
        *others, last = original(self)
        empty = tuple([copy._replace(status=Status.UNKNOWN_FILE, size_bytes=0) for copy in last.copies])
        return iter([*others, last._replace(copies=empty)])

    original = Seals.results
    Seals.results = results  # type: ignore[method-assign]


def nothing_is_synced(role: str) -> None:
    """A worker says that files and folders are on the disk, and they are in the kernel."""
    if role != "worker":
        return
    from holdfast.worker.storage.env.system_files import SystemFiles

    SystemFiles.sync = lambda self, handle: None  # type: ignore[method-assign]
    SystemFiles.sync_folder = lambda self, path: None  # type: ignore[method-assign]
