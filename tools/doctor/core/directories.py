"""Judges the directories of a configuration: usable, the right one's, on a disk that keeps what it acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from holdfast.common.config.config import Config
from holdfast.common.sizes import in_bytes
from holdfast.tools.doctor.core.facts import DirectoryFact
from holdfast.tools.doctor.core.findings import Symptom, advice, problem

#: File systems whose bytes are in memory, those that go with a container, and those whose locks and syncs others keep.
MEMORY_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_PASSING_SYSTEMS = frozenset({"overlay", "aufs"})
_REMOTE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "afs"})
#: A device has to get a command and answer: the quickest take longer than this for a journal's commit.
DISHONEST_US = 20.0
#: A seal may wait so long for each sync; a master's every command does.
_SLOW_US = 100_000.0
#: A tenth of a directory at most is kept back, as the worker does it.
_RESERVE_SHARE = 10
_INODES_LEAST = 10_000


def check_shared(problem_text: str) -> Iterator[Symptom]:
    """The worker's error for two directories that are one, or one in another; "" if all is well."""
    if problem_text:
        what, _, remedy = problem_text.rpartition(": ")
        yield problem("directory-twice", "worker.directories", what, remedy)


def check_directories(config: Config, directories: Sequence[DirectoryFact]) -> Iterator[Symptom]:
    """Each by itself, then two by two."""
    for each in directories:
        yield from _one(config, each)
    for first, second in combinations([each for each in directories if each.device], 2):
        if first.device == second.device and "MEMORY" not in (first.tier, second.tier):
            what = f"is on the same device as {first.setting} {first.path}: one disk that fails or hangs takes both"
            remedy = "put one directory on each disk; a second one on the same disk adds neither room nor speed"
            yield advice("one-device", f"{second.setting} {second.path}", what, remedy)


def _one(config: Config, each: DirectoryFact) -> Iterator[Symptom]:
    where = f"{each.setting} {each.path}"
    if each.unusable:
        what, _, remedy = each.unusable.rpartition(": ")
        yield problem("directory-unusable", where, what, remedy or "give it to the user that runs the server")
        if not each.file_system:
            return
    yield from _whose(config, where, each)
    if each.open_to_all:
        what = "every user of this host may write there, and can change or remove acknowledged data"
        yield problem("directory-open", where, what, f"chmod 0700 {each.path}")
    if each.not_mounted:
        what = f"/etc/fstab has a file system for {each.not_mounted}, which is not mounted: it would fill another disk"
        yield problem("not-mounted", where, what, f"mount {each.not_mounted}, and have the server started after it")
    yield from _file_system(where, each)
    yield from _sync(config, where, each)
    yield from _free_space(config, where, each)


def _whose(config: Config, where: str, each: DirectoryFact) -> Iterator[Symptom]:
    if each.damaged:
        remedy = f"stop the worker and look with `holdfast inspect {each.path}`; the index has the same values"
        yield problem("directory-damaged", where, f"the file identity cannot be read: {each.damaged}", remedy)
    other = ""
    if each.cluster_id and each.cluster_id != config.cluster.id:
        other = f'cluster "{each.cluster_id}", and this configuration is of "{config.cluster.id}"'
    elif each.worker_name and each.worker_name != config.worker.name:
        other = f'worker "{each.worker_name}", and this one is "{config.worker.name}"'
    if other:
        remedy = "name an empty directory, or the one that is this worker's; a directory always belongs to one worker"
        yield problem("directory-foreign", where, f"holds the data of {other}", remedy)


def _file_system(where: str, each: DirectoryFact) -> Iterator[Symptom]:
    kind, in_memory = each.file_system, each.file_system in MEMORY_SYSTEMS
    if in_memory and each.tier != "MEMORY":
        whose = f"tier {each.tier} promises" if each.tier else "a master's journal needs"
        what = f"is on {kind}, in memory, and {whose} what survives a restart of the machine"
        remedy = "name a directory on a disk" + (', or write tier = "MEMORY" with a capacity' if each.tier else "")
        yield problem("file-system", where, what, remedy)
    elif each.tier == "MEMORY" and kind and not in_memory:
        remedy = 'name a directory on a tmpfs, such as /dev/shm/holdfast, or write tier = "SSD" or "HDD"'
        yield advice("tier", where, f"is of tier MEMORY and is on {kind}, which is as slow as its disk", remedy)
    elif kind in _REMOTE_SYSTEMS:
        what = f"is on {kind}: the index's memory map, locks and syncs cannot be trusted over a network"
        yield problem("file-system", where, what, "name a directory on a disk of this machine; a shared store is [dfs]")
    elif kind in _PASSING_SYSTEMS:
        what = f"is on {kind}: it is deleted with the container, with all acknowledged data"
        yield problem("file-system", where, what, "mount a volume of the host there")


def _sync(config: Config, where: str, each: DirectoryFact) -> Iterator[Symptom]:
    if each.sync_us is None or each.file_system in MEMORY_SYSTEMS:
        return
    if each.sync_us < DISHONEST_US:
        what = f"4 KiB are written and synced in {each.sync_us:.0f} µs, which no device can: syncs are not carried out"
        remedy = (
            "take away what swallows them (eatmydata, nobarrier, a virtual disk with cache=unsafe): what is promised to"
            " survive a power loss would not"
        )
        yield problem("sync-dishonest", where, what, remedy)
        return
    slow_us, level = _SLOW_US, advice
    reason = "every seal waits for some of them"
    if not each.tier:
        slow_us, level = config.raft.heartbeat.ns / 1e3, problem
        reason = "every command of the cluster waits for it, and it can cause elections"
    if each.sync_us > slow_us:
        what = f"4 KiB are written and synced in {each.sync_us / 1e3:.0f} ms: {reason}"
        yield level("sync-slow", where, what, "name a directory on a quicker or less busy disk, an SSD where you can")


def _free_space(config: Config, where: str, each: DirectoryFact) -> Iterator[Symptom]:
    if each.inodes and each.inodes_free < _INODES_LEAST:
        what = f"only {each.inodes_free} more files can be made on its file system"
        yield problem("inodes", where, what, "remove small files there, or make the file system anew with more inodes")
    if not each.size_bytes:
        return
    if each.capacity_bytes > each.size_bytes:
        what = f"capacity is {in_bytes(each.capacity_bytes)}, and the file system has {in_bytes(each.size_bytes)}"
        yield problem("room", where, what, "lower capacity, or enlarge the file system")
    if not each.tier:
        if each.free_bytes < config.raft.snapshot_bytes * 4:
            what = f"{in_bytes(each.free_bytes)} are free, and journal and snapshots take several times snapshot_bytes"
            yield problem("room", where, what, f"make {in_bytes(config.raft.snapshot_bytes * 4)} free, or move it")
        return
    capacity = each.capacity_bytes or each.size_bytes
    reserve = min(config.worker.disk_reserve, capacity // _RESERVE_SHARE)
    if each.free_bytes < reserve:
        what = f"{in_bytes(each.free_bytes)} are free, less than the {in_bytes(reserve)} kept back: it takes nothing"
        yield problem("room", where, what, "make room on that disk, or lower worker.disk_reserve")
