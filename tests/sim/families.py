"""Families of seeds, each from a number on: what happens often in them, so that what is rare elsewhere comes to pass.

A family changes the shape that a seed has drawn, with chance of its own: what seeds of others play stays as it is.
"""

from __future__ import annotations

import argparse
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.common.formats.messages import Ack
from holdfast.worker.core.write.reduce import SplitLimits
from tests.sim.worker import BODY_BYTES

if TYPE_CHECKING:
    from tests.sim.scenario import Shape

#: An application with MAP shuffles works beside the job.
MAP_SEEDS = 1_000_000
#: What hurts a disk or a process and leaves no excuse for what was synced; little else happens.
DISK_SEEDS = 2_000_000
#: The push log turns fast, files are flushed all the time, and faults strike right there.
LOG_SEEDS = 3_000_000
#: Files move, and shuffles are dropped while they are sealed, moved and read.
DROP_SEEDS = 3_100_000
#: Files move while they are read, of the only copy.
MOVE_SEEDS = 3_200_000
#: One or two kinds of faults, and mostly one copy: there is little that excuses a loss.
FEW_SEEDS = 3_300_000
#: Machines lose power while segments of the push log are used again.
REUSE_SEEDS = 3_400_000
#: Logs are damaged, and the disk that should keep what follows from that is sick.
SICK_LOG_SEEDS = 3_500_000
#: Applications fall silent while they write, and what they wrote goes beside what others write.
SILENT_SEEDS = 3_600_000
#: Up to three copies of everything, with faults that take one or two of them.
COPIES_SEEDS = 3_700_000
#: Workers stay away, and what they had is copied again.
RESTORE_SEEDS = 3_800_000
#: A sync fails, and its worker dies right behind it; transactions of indexes fail while all files are well.
SYNC_SEEDS = 3_900_000
#: Workers have little room, and a DFS below it.
DFS_SEEDS = 4_000_000
#: The same with one or two kinds of faults, long enough for what follows from them: looks that fail, files looked for.
DFS_LOSS_SEEDS = 4_100_000
#: Fewer copies acknowledge a push than there are.
ACK_SEEDS = 4_200_000
#: Nothing is wrong, and many push at once into windows of a single body, with two copies.
CROWD_SEEDS = 4_300_000
#: Starts lack directories, each another one.
MOUNT_SEEDS = 4_400_000
#: A copy is given up by its seal, on a disk that takes no mark of that, and its index cannot be read.
GIVEN_UP_SEEDS = 4_500_000
#: Hosts have several workers, and die, are lost and are drained with all of them.
HOST_SEEDS = 4_600_000
#: Processes have no descriptors for a moment, again and again: nothing excuses a loss.
DESCRIPTOR_SEEDS = 4_700_000
_FIRST = (
    *(0, MAP_SEEDS, DISK_SEEDS, LOG_SEEDS, DROP_SEEDS, MOVE_SEEDS, FEW_SEEDS, REUSE_SEEDS),
    *(SICK_LOG_SEEDS, SILENT_SEEDS, COPIES_SEEDS, RESTORE_SEEDS, SYNC_SEEDS, DFS_SEEDS, DFS_LOSS_SEEDS, ACK_SEEDS),
    *(CROWD_SEEDS, MOUNT_SEEDS, GIVEN_UP_SEEDS, HOST_SEEDS, DESCRIPTOR_SEEDS),
)


def add_seeds(parser: argparse.ArgumentParser, shared: int) -> None:
    """Let a command be told which seeds it is about; if it is not, it has so many, shared among all families."""
    told = f"A-B, both included, any number of them; else {shared:,} are shared among all families"
    parser.add_argument("--seeds", nargs="+", type=_span, default=_of_all(shared), metavar="A-B", help=told)


def _span(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _of_all(count: int) -> list[range]:
    """So many seeds of every family; the first has what cannot be shared."""
    each, more = divmod(count, len(_FIRST))
    return [range(first, first + each + (0 if first else more)) for first in _FIRST]


_DISK_FAULTS = ("kill", "power", "inside", "full", "sick", "hang", "all")
_LOG_FAULTS = ("kill", "power", "aimed", "aimed_power", "brim", "unsynced", "log_rot", "lost_log")
_DROP_FAULTS = ("kill", "inside", "aimed", "aimed_power", "brim", "hang", "wipe", "vanish")
_FEW = (
    *(("wipe_some",), ("kill", "wipe_some"), ("kill", "lost_log"), ("kill", "log_rot"), ("kill",), ("power",)),
    *(("unsynced",), ("kill", "unsynced"), ("brim",), ("brim", "kill"), ("kill", "sick"), ("aimed_power",)),
    *(("isolate",), ("isolate", "kill"), ("master",), ("cut",)),
)
#: What keeps a worker from what the others do, or takes what it had.
_COPY_FAULTS = (
    *((), ("kill",), ("kill", "cut"), ("kill", "isolate"), ("cut",), ("isolate",), ("wipe_some",), ("kill", "wipe")),
    *(("full",), ("full", "kill"), ("sick",), ("kill", "sick"), ("hang", "kill"), ("kill", "log_rot")),
)
_RESTORE_FAULTS = (
    *(("kill",), ("kill",), ("kill", "wipe"), ("kill", "inside"), ("kill", "aimed"), ("kill", "isolate")),
    *(("kill", "full"), ("kill", "sick"), ("kill", "cut"), ("kill", "master"), ("power",), ("kill", "rot")),
)
_SYNC_FAULTS = (
    *(("unsynced_killed",), ("sick_index",), ("kill", "sick_index"), ("power", "unsynced_killed")),
    *(("sick_index", "unsynced_killed"), ("all", "unsynced_killed")),
)
#: What makes a replica slow, or keeps it from its primary, or takes the primary.
_ACK_FAULTS = (
    *((), ("cut",), ("hang",), ("isolate",), ("kill",), ("kill", "cut"), ("kill", "hang"), ("kill", "isolate")),
    *(("full",), ("sick",), ("kill", "master"), ("cut", "master"), ("kill", "wipe"), ("power",)),
)
_HOST_FAULTS = (
    *(("host_killed",), ("host_killed", "host_lost"), ("host_lost", "kill"), ("host_lost", "cut"), ("host_drained",)),
    *(("host_drained", "host_killed"), ("host_drained", "kill"), ("host_drained", "master"), ("cut", "host_drained")),
    *(("host_drained", "isolate"), ("host_killed", "host_lost", "master")),
)
_DFS_FAULTS = (
    *("ambush", "kill", "power", "inside", "full", "all", "sick", "lost_index", "bad_page", "wipe_some", "vanish"),
    *("dfs_errors", "dfs_hang", "dfs_away", "dfs_refuses", "dfs_full", "dfs_other"),
)
#: Of the DFS alone; and indexes that are lost, with what disturbs the search for the files that they had there.
_DFS_LOSSES = (
    *(("dfs_away",), ("dfs_away", "dfs_refuses"), ("dfs_errors",), ("dfs_errors", "dfs_hang"), ("kill", "sick")),
    *(("kill", "lost_index"), ("ambush", "lost_index"), ("dfs_hang", "kill", "lost_index"), ("all", "lost_index")),
    *(("dfs_away", "lost_index"), ("dfs_errors", "lost_index")),
)
#: Faults of a seed in which the DFS is away for minutes.
_LONG_SECONDS = 120.0


def family_of(seed: int) -> int:
    """The first seed of the family."""
    return _FIRST[bisect_right(_FIRST, seed) - 1]


def of_family(seed: int, shape: Shape) -> Shape:
    """The shape of a seed in its family."""
    change = _CHANGES.get(family_of(seed))
    return shape if change is None else change(seed, shape)


def _on_disks(seed: int, shape: Shape) -> Shape:
    """Mostly at SYNCED, with faults that come fast."""
    rng = random.Random(f"disks {seed}")
    kinds = rng.sample(_DISK_FAULTS, rng.choice((1, 2, 3, len(_DISK_FAULTS))))
    return replace(
        shape,
        ack=rng.choice((Ack.SYNCED, Ack.SYNCED, Ack.WRITTEN)),
        faults=tuple(sorted(kinds)),
        pace=rng.choice((0.1, 0.2, 0.4)),
        maps=rng.choice((2, 4)),
        records=25,
        tiers=rng.choice((("SSD",), ("SSD", "HDD"), ("SSD", "SSD"))),
        segment_bytes=rng.choice((2_500, 6_000)),
    )


def _on_logs(seed: int, shape: Shape) -> Shape:
    """Small segments and many pushes of each epoch; one or two kinds of faults, and workers that are soon back."""
    rng = random.Random(f"logs {seed}")
    kinds = {rng.choice(("kill", "aimed", "power", "aimed_power")), *rng.sample(_LOG_FAULTS, rng.choice((0, 1, 2)))}
    return replace(
        shape,
        workers=rng.choice((2, 3)),
        ack=rng.choice((Ack.SYNCED, Ack.SYNCED, Ack.WRITTEN)),
        copies=rng.choice((1, 1, 2)),
        faults=tuple(sorted(kinds)),
        pace=rng.choice((0.3, 0.6)),
        restart=0.5,
        maps=4,
        partitions=rng.choice((1, 2, 5)),
        records=60,
        press=rng.choice((60, 400)),
        pause=rng.choice((0.0, 0.0, 0.02)),
        limits=rng.choice((shape.limits, SplitLimits(1 << 30, 1 << 31))),
        speed=rng.choice((0.02, 0.1, 0.3)),
        memory=1 << 20,
        tiers=rng.choice((("SSD",), ("SSD",), ("SSD", "SSD"))),
        capacity=0,
        segment_bytes=rng.choice((1_200, 2_500)),
        asks=True,
    )


def _with_drops(seed: int, shape: Shape) -> Shape:
    """Two directories, often with little room; the driver gives shuffles up in the middle of things."""
    rng = random.Random(f"drops {seed}")
    return replace(
        shape,
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN)),
        copies=rng.choice((1, 1, 2)),
        faults=tuple(sorted(rng.sample(_DROP_FAULTS, rng.choice((0, 1, 1, 2, 3))))),
        pace=rng.choice((0.2, 0.4)),
        maps=rng.choice((2, 4)),
        records=25,
        press=rng.choice((60, 400)),
        pause=rng.choice((0.0, 0.02)),
        limits=rng.choice((shape.limits, SplitLimits(400, 800))),
        tiers=rng.choice((("MEMORY", "HDD"), ("SSD", "HDD"), ("SSD", "HDD"), ("SSD", "SSD"))),
        capacity=rng.choice((0, 15_000, 30_000)),
        segment_bytes=rng.choice((1_200, 2_500)),
        shared=rng.random() < 0.3,
        hasty=rng.choice((0.2, 0.6)),
        check_seconds=rng.choice((0.2, 1.5)),
        speed=rng.choice((0.1, 0.6)),
        open_files=rng.choice((1, 512)),
        asks=True,
    )


def _with_moves(seed: int, shape: Shape) -> Shape:
    """Directories of two tiers, of which the first has little room, and readers of what is committed, all the time."""
    rng = random.Random(f"moves {seed}")
    return replace(
        shape,
        workers=2,
        ack=Ack.WRITTEN,
        copies=1,
        faults=rng.choice(((), (), ("hang",), ("aimed",))),
        pace=1.5,
        restart=0.5,
        slow=rng.choice((0.03, 0.1)),
        maps=4,
        partitions=5,
        records=60,
        press=400,
        pause=0.0,
        limits=rng.choice((SplitLimits(1_500, 3_000), SplitLimits(1 << 30, 1 << 31))),
        speed=rng.choice((0.1, 0.3)),
        tiers=rng.choice((("MEMORY", "HDD"), ("SSD", "HDD"))),
        capacity=rng.choice((15_000, 30_000)),
        roomy=True,
        segment_bytes=1_200,
        open_files=1,
        readers=4,
        asks=True,
    )


def _with_few_faults(seed: int, shape: Shape) -> Shape:
    """Seals are asked for again, and what is wrong comes often."""
    rng = random.Random(f"few {seed}")
    faults = rng.choice(_FEW)
    several = (("SSD", "SSD"), ("SSD", "HDD"))
    return replace(
        shape,
        workers=rng.choice((2, 3)),
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN)),
        copies=rng.choice((1, 1, 1, 2)),
        faults=faults,
        pace=rng.choice((0.4, 1.0)),
        restart=rng.choice((0.5, 2.0)),
        maps=rng.choice((2, 4)),
        partitions=rng.choice((1, 2, 5)),
        records=25,
        press=rng.choice((60, 400)),
        pause=rng.choice((0.0, 0.02)),
        limits=rng.choice((shape.limits, SplitLimits(400, 800), SplitLimits(1 << 30, 1 << 31))),
        speed=rng.choice((0.02, 0.1, 0.6)),
        memory=1 << 20,
        tiers=rng.choice(several if "wipe_some" in faults else (("SSD",), *several)),
        capacity=0,
        segment_bytes=rng.choice((1_200, 2_500, 6_000)),
        asks=True,
    )


def _with_reuse(seed: int, shape: Shape) -> Shape:
    """One copy at SYNCED, and syncs that take long."""
    rng = random.Random(f"reuse {seed}")
    return replace(
        _on_logs(seed, shape),
        ack=Ack.SYNCED,
        copies=1,
        faults=("reused",),
        fault_seconds=20.0,
        pace=rng.choice((0.5, 1.0)),
        press=60,
        speed=rng.choice((0.1, 0.3)),
        tiers=("SSD",),
        segment_bytes=rng.choice((600, 1_200)),
    )


def _with_sick_logs(seed: int, shape: Shape) -> Shape:
    """One copy, of which a worker has to say that it is lost, again and again."""
    rng = random.Random(f"sick logs {seed}")
    return replace(
        _on_logs(seed, shape),
        copies=1,
        faults=rng.choice((("lost_log", "sick"), ("log_rot", "sick"), ("kill", "log_rot", "lost_log", "sick"))),
        pace=rng.choice((0.2, 0.4)),
        tiers=("SSD",),
    )


def _with_silent(seed: int, shape: Shape) -> Shape:
    """Many applications at SYNCED on few workers, syncs that take long, and files that are opened for each of them."""
    rng = random.Random(f"silent {seed}")
    return replace(
        _on_logs(seed, shape),
        workers=2,
        ack=Ack.SYNCED,
        copies=1,
        faults=rng.choice(((), ("kill",), ("weather",))),
        pace=1.5,
        maps=2,
        partitions=2,
        guests=6,
        press=60,
        limits=SplitLimits(1 << 30, 1 << 31),
        speed=rng.choice((0.3, 0.6)),
        tiers=("SSD",),
        segment_bytes=rng.choice((600, 1_200)),
        check_seconds=rng.choice((0.2, 0.5)),
        open_files=1,
    )


def _with_copies(seed: int, shape: Shape) -> Shape:
    """Mostly three copies on three to five workers; little else that is rare."""
    rng = random.Random(f"copies {seed}")
    return replace(
        shape,
        workers=rng.choice((3, 4, 5)),
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN, Ack.MEMORY)),
        copies=rng.choice((1, 2, 3, 3, 3)),
        faults=rng.choice(_COPY_FAULTS),
        pace=rng.choice((0.4, 1.0)),
        restart=rng.choice((0.5, 4.0)),
        maps=rng.choice((2, 4)),
        partitions=rng.choice((2, 5)),
        records=25,
        press=rng.choice((60, 400)),
        pause=rng.choice((0.0, 0.02)),
        limits=rng.choice((shape.limits, SplitLimits(400, 800), SplitLimits(1 << 30, 1 << 31))),
        speed=rng.choice((0.02, 0.1)),
        memory=1 << 20,
        capacity=0,
        asks=rng.random() < 0.5,
    )


def _with_restored_copies(seed: int, shape: Shape) -> Shape:
    """Two copies, mostly, on workers that are often away for so long that their copies are made anew elsewhere; some
    lose what they had. Readers go on all the time."""
    rng = random.Random(f"restored {seed}")
    return replace(
        _with_copies(seed, shape),
        workers=rng.choice((4, 5)),
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN)),
        copies=rng.choice((2, 2, 3)),
        faults=rng.choice(_RESTORE_FAULTS),
        pace=rng.choice((1.0, 2.0)),
        restart=rng.choice((8.0, 16.0)),
        fault_seconds=30.0,
        restore_after=rng.choice(("1s", "3s")),
        hasty=rng.choice((0.0, 0.0, 0.2)),
        readers=rng.choice((0, 1)),
        asks=True,
    )


def _with_failed_syncs(seed: int, shape: Shape) -> Shape:
    """One copy, which is read while more is written, on workers that are soon back."""
    rng = random.Random(f"failed syncs {seed}")
    return replace(
        _on_logs(seed, shape),
        copies=1,
        faults=rng.choice(_SYNC_FAULTS),
        pace=rng.choice((0.4, 1.0)),
        records=25,
        limits=rng.choice((SplitLimits(400, 800), SplitLimits(1 << 30, 1 << 31))),
        tiers=rng.choice((("SSD",), ("SSD", "SSD"))),
        readers=1,
        hasty=rng.choice((0.0, 0.2)),
    )


def _with_fewer_acks(seed: int, shape: Shape) -> Shape:
    """Three copies, mostly, of which one or two acknowledge, over a network that is often slow; copies that lack
    something are often made again."""
    rng = random.Random(f"acks {seed}")
    copies = rng.choice((2, 3, 3, 3, 4))
    return replace(
        _with_copies(seed, shape),
        workers=rng.choice((4, 5)),
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN, Ack.MEMORY)),
        copies=copies,
        ack_copies=rng.choice(range(1, copies)),
        faults=rng.choice(_ACK_FAULTS),
        pace=rng.choice((0.4, 1.0)),
        restart=rng.choice((0.5, 4.0)),
        fault_seconds=rng.choice((8.0, 20.0)),
        slow=rng.choice((0.002, 0.05, 0.3)),
        limits=rng.choice((SplitLimits(400, 800), SplitLimits(1_500, 3_000), SplitLimits(1 << 30, 1 << 31))),
        restore_after=rng.choice(("0s", "1s", "3s")),
        readers=rng.choice((0, 1)),
        asks=True,
    )


def _over_dfs(seed: int, shape: Shape) -> Shape:
    """So little room that what is sealed goes to the DFS."""
    rng = random.Random(f"dfs {seed}")
    kinds = {"ambush", *rng.sample(_DFS_FAULTS, rng.choice((1, 2, 3, 5)))}
    shape = replace(
        shape,
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN, Ack.MEMORY)),
        workers=rng.choice((1, 2, 3)),
        copies=rng.choice((1, 1, 2)),
        maps=rng.choice((2, 4)),
        records=25,
        limits=rng.choice((SplitLimits(400, 800), SplitLimits(1_500, 3_000))),
        tiers=rng.choice((("SSD",), ("SSD", "SSD"), ("SSD", "HDD"), ("MEMORY", "SSD"))),
        capacity=rng.choice((6_000, 12_000, 30_000)),
        segment_bytes=2_500,
        dfs=rng.choice(("s3", "hdfs")),
        faults=tuple(sorted(kinds)),
        pace=rng.choice((0.2, 0.4, 0.8)),
    )
    if rng.random() < 0.1:
        shape = replace(shape, fault_seconds=_LONG_SECONDS, faults=("ambush", "dfs_away", "kill"), pace=10.0, pause=0.2)
    return shape


def _lost_on_dfs(seed: int, shape: Shape) -> Shape:
    """Seals are asked for again, and shuffles are given up."""
    rng = random.Random(f"dfs losses {seed}")
    return replace(
        _over_dfs(seed, shape),
        copies=rng.choice((1, 2)),
        workers=rng.choice((2, 3)),
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN)),
        capacity=rng.choice((6_000, 12_000)),
        faults=rng.choice(_DFS_LOSSES),
        fault_seconds=rng.choice((8.0, 20.0)),
        pace=rng.choice((0.5, 1.5, 3.0)),
        restart=rng.choice((0.5, 4.0)),
        hasty=rng.choice((0.0, 0.3)),
        readers=rng.choice((0, 1)),
        asks=True,
    )


def _in_a_crowd(seed: int, shape: Shape) -> Shape:
    """Workers that wait for one another would wait for ever: no fault ends that."""
    rng = random.Random(f"crowd family {seed}")
    return replace(
        shape,
        faults=(),
        maps=rng.choice((6, 8)),
        executors=rng.choice((3, 4)),
        workers=rng.choice((2, 3)),
        copies=2,
        records=25,
        press=1 << 20,
        pause=0.0,
        memory=2 * BODY_BYTES,
        limits=SplitLimits(1 << 30, 1 << 31),
        capacity=0,
    )


def _with_mounts(seed: int, shape: Shape) -> Shape:
    """Two directories, and messages that take so long that a start is asked for seals before it is registered."""
    rng = random.Random(f"mounts {seed}")
    return replace(
        _with_copies(seed, shape),
        workers=rng.choice((2, 3)),
        ack=rng.choice((Ack.WRITTEN, Ack.MEMORY)),
        copies=rng.choice((1, 1, 2)),
        faults=rng.choice((("swapped",), ("kill", "swapped"), ("cut", "swapped"), ("swapped", "weather"))),
        pace=rng.choice((1.0, 3.0)),
        restart=0.5,
        fault_seconds=20.0,
        slow=rng.choice((0.05, 0.3, 0.6)),
        tiers=("SSD", "SSD"),
        pause=rng.choice((0.02, 0.2)),
        asks=True,
    )


def _with_given_up(seed: int, shape: Shape) -> Shape:
    """Small epochs of one copy, which are sealed all the time, and asked for again."""
    rng = random.Random(f"given up {seed}")
    return replace(
        _on_logs(seed, shape),
        copies=1,
        ack=Ack.WRITTEN,
        faults=rng.choice((("sick", "unreadable"), ("sick", "unreadable", "unsynced"))),
        pace=rng.choice((0.1, 0.2)),
        fault_seconds=20.0,
        records=25,
        press=60,
        pause=rng.choice((0.02, 0.2)),
        limits=rng.choice((SplitLimits(400, 800), SplitLimits(1_500, 3_000))),
        tiers=("SSD",),
    )


def _on_hosts(seed: int, shape: Shape) -> Shape:
    """Three or four hosts of two workers, and two or three copies, each on a host of its own."""
    rng = random.Random(f"hosts {seed}")
    per_host, hosts = rng.choice(((2, 3), (2, 3), (2, 4), (3, 3)))
    return replace(
        _with_copies(seed, shape),
        workers=per_host * hosts,
        per_host=per_host,
        ack=rng.choice((Ack.SYNCED, Ack.WRITTEN, Ack.WRITTEN)),
        copies=rng.choice((2, 2, 3)),
        faults=rng.choice(_HOST_FAULTS),
        pace=rng.choice((0.6, 1.5)),
        restart=rng.choice((0.5, 4.0)),
        fault_seconds=30.0,
        pause=rng.choice((0.02, 0.2)),
        partitions=2,
        restore_after=rng.choice(("0s", "1s", "1s", "3s")),
        hasty=rng.choice((0.2, 0.5)),
        readers=rng.choice((0, 1)),
    )


def _without_descriptors(seed: int, shape: Shape) -> Shape:
    """Files that are opened each time, and syncs that take long."""
    rng = random.Random(f"descriptors {seed}")
    return replace(
        _on_logs(seed, shape),
        copies=rng.choice((1, 1, 2)),
        faults=rng.choice((("no_descriptors",), ("kill", "no_descriptors"), ("aimed", "no_descriptors"))),
        pace=rng.choice((0.4, 1.0)),
        records=25,
        limits=rng.choice((SplitLimits(400, 800), SplitLimits(1_500, 3_000), SplitLimits(1 << 30, 1 << 31))),
        open_files=1,
        readers=rng.choice((0, 1)),
    )


_CHANGES: dict[int, Callable[[int, Shape], Shape]] = {
    DISK_SEEDS: _on_disks,
    LOG_SEEDS: _on_logs,
    DROP_SEEDS: _with_drops,
    MOVE_SEEDS: _with_moves,
    FEW_SEEDS: _with_few_faults,
    REUSE_SEEDS: _with_reuse,
    SICK_LOG_SEEDS: _with_sick_logs,
    SILENT_SEEDS: _with_silent,
    COPIES_SEEDS: _with_copies,
    RESTORE_SEEDS: _with_restored_copies,
    SYNC_SEEDS: _with_failed_syncs,
    DFS_SEEDS: _over_dfs,
    DFS_LOSS_SEEDS: _lost_on_dfs,
    ACK_SEEDS: _with_fewer_acks,
    CROWD_SEEDS: _in_a_crowd,
    MOUNT_SEEDS: _with_mounts,
    GIVEN_UP_SEEDS: _with_given_up,
    HOST_SEEDS: _on_hosts,
    DESCRIPTOR_SEEDS: _without_descriptors,
}
