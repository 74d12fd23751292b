"""Snapshot files: written whole or not at all, and no damaged one is ever used."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.master.raft.codec import SnapshotPart
from holdfast.master.raft.errors import StorageDamaged, StorageFailed
from holdfast.master.raft.snapshot import FileSnapshots, SnapshotId, header

GOLDEN = Path(__file__).parents[1] / "golden"
CHUNKS = [b"first", bytes(100_000), b"last"]


def written(directory: Path, index: int = 250) -> FileSnapshots:
    """A home with one snapshot."""
    snapshots = FileSnapshots(directory, "c1")
    snapshots.write(SnapshotId(index, 5), CHUNKS)
    return snapshots


def test_a_snapshot_is_found_again(tmp_path: Path) -> None:
    """After a restart the snapshot's place and content are as written."""
    written(tmp_path)
    again = FileSnapshots(tmp_path, "c1")
    assert again.current == SnapshotId(250, 5)
    assert b"".join(again.chunks()) == b"".join(CHUNKS)


def test_golden_header() -> None:
    """The bytes of a header are those on record."""
    recorded = bytes.fromhex((GOLDEN / "raft_snapshot_header.hex").read_text())
    assert header("c1", SnapshotId(250, 5), 4464, 0x01020304) == recorded


def test_flips_and_cuts_are_refused(tmp_path: Path) -> None:
    """A flipped bit anywhere, or a cut anywhere, and the node refuses to start on the snapshot, naming the file."""
    written(tmp_path)
    whole = (tmp_path / "snapshot").read_bytes()
    rng = random.Random(3)
    places = [*range(60), *(rng.randrange(len(whole)) for _ in range(150))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        (tmp_path / "snapshot").write_bytes(damaged)
        with pytest.raises(StorageDamaged, match="snapshot"):
            FileSnapshots(tmp_path, "c1")
    for length in [*range(60), *(rng.randrange(len(whole)) for _ in range(20))]:
        (tmp_path / "snapshot").write_bytes(whole[:length])
        with pytest.raises(StorageDamaged, match="snapshot"):
            FileSnapshots(tmp_path, "c1")


def test_another_clusters_snapshot_is_refused(tmp_path: Path) -> None:
    """The snapshot names its cluster."""
    written(tmp_path)
    with pytest.raises(StorageDamaged, match="belongs to cluster 'c1'"):
        FileSnapshots(tmp_path, "c2")


def test_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    """When encoding ends half way, the current snapshot stays what it was."""
    snapshots = written(tmp_path)

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("disk")

    with pytest.raises(StorageFailed, match=r"cannot be written: disk; .* inodes are free there"):
        snapshots.write(SnapshotId(300, 6), broken())
    assert FileSnapshots(tmp_path, "c1").current == SnapshotId(250, 5)


def parts(snapshots: FileSnapshots, size: int) -> list[SnapshotPart]:
    """The current snapshot as a leader sends it."""
    transfer = snapshots.transfer()
    assert transfer is not None
    found = []
    for offset in range(0, transfer.total, size):
        data = transfer.read(offset, size)
        found.append(SnapshotPart(7, offset, transfer.id.index, transfer.id.term, transfer.total, offset, data))
    transfer.close()
    return found


def test_a_snapshot_goes_in_parts(tmp_path: Path) -> None:
    """Parts in order make the same snapshot elsewhere; only the last one completes it."""
    sent = parts(written(tmp_path / "from"), 30_000)
    to = FileSnapshots(tmp_path / "to", "c1")
    assert [to.receive(part) for part in sent] == [False] * (len(sent) - 1) + [True]
    assert to.adopt() == SnapshotId(250, 5)
    assert b"".join(to.chunks()) == b"".join(CHUNKS)


def test_parts_out_of_order_or_of_two_snapshots_do_not_mix(tmp_path: Path) -> None:
    """A missing part, or one of another snapshot, never completes a file; beginning again does."""
    old, new = parts(written(tmp_path / "old"), 30_000), parts(written(tmp_path / "new", 900), 30_000)
    to = FileSnapshots(tmp_path / "to", "c1")
    assert not any(to.receive(part) for part in [old[0], old[2], old[3]])
    assert not any(to.receive(part) for part in [old[0], new[1], new[2], new[3]])
    assert to.current is None
    assert [to.receive(part) for part in new][-1]
    assert to.adopt() == SnapshotId(900, 5)


def test_a_newer_snapshot_does_not_disturb_a_transfer(tmp_path: Path) -> None:
    """A transfer under way goes on reading the snapshot it began with."""
    snapshots = written(tmp_path / "from")
    transfer = snapshots.transfer()
    assert transfer is not None
    before = transfer.read(0, transfer.total)
    snapshots.write(SnapshotId(300, 6), [b"other"])
    assert transfer.read(0, transfer.total) == before
    transfer.close()
