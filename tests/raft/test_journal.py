"""The journal on LMDB: what was synced is there, what is damaged is refused, nothing is written twice."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import lmdb
import pytest

from holdfast.common.lmdb_pages import PageCheck
from holdfast.master.raft.errors import SettingsRefused, StorageDamaged
from holdfast.master.raft.journal import REMOVE_LIMIT, Change, Journal, Meta
from holdfast.master.raft.journal_store import LmdbStore, entry_key, meta_body, sealed

GOLDEN = Path(__file__).parents[1] / "golden"


class Opened:
    """Journals of one test, closed at its end."""

    def __init__(self) -> None:
        self.journals: list[Journal] = []

    def __call__(self, directory: Path, node: str = "m1", cluster: str = "c1") -> Journal:
        journal = Journal(LmdbStore(directory, cluster, node))
        self.journals.append(journal)
        return journal

    def close(self) -> None:
        """Close all that are open."""
        while self.journals:
            self.journals.pop()._destroy()


@pytest.fixture
def opened():
    """A function that opens journals."""
    opener = Opened()
    yield opener
    opener.close()


def fill(journal: Journal, first: int, count: int, term: int) -> None:
    """Add numbered entries."""
    for index in range(first, first + count):
        journal.add(b"\x00\x01entry %d of term %d" % (index, term), index, term)


def view(journal: Journal) -> tuple[object, ...]:
    """Everything a restart must find again, but for the commit index."""
    return (list(journal[:]), journal.getCurrentTerm(), journal.getVotedForNodeId())


def test_synced_changes_are_found_again(tmp_path: Path, opened: Opened) -> None:
    """Entries, term, vote and commit index come back as they were at the last sync."""
    journal = opened(tmp_path)
    fill(journal, 1, 50, 1)
    journal.setCurrentTerm(3, "m2")
    journal.setRaftCommitIndex(40)
    journal.sync()
    kept = view(journal)
    fill(journal, 51, 5, 3)  # never synced
    opened.close()
    again = opened(tmp_path)
    assert view(again) == kept
    assert again.getRaftCommitIndex() == 40


def test_every_moment_is_before_or_after_a_change(tmp_path: Path, opened: Opened) -> None:
    """A copy of the directory taken around each of many random changes opens as the state before or after it."""
    rng = random.Random(5)
    journal = opened(tmp_path / "live")
    fill(journal, 1, 3, 1)
    journal.sync()
    term = 1
    for step in range(40):
        before = view(journal)
        kind = rng.choice(["add", "cut", "term", "head", "restart"])
        if kind == "cut" and len(journal) > 2:
            journal.deleteEntriesFrom(rng.randrange(1, len(journal)))
            term += 1
            fill(journal, journal.last_index + 1, rng.randrange(1, 4), term)
        elif kind == "head" and len(journal) > 4:
            journal.drop_covered(journal.first_index + rng.randrange(1, 4), 0, 0)
            fill(journal, journal.last_index + 1, 1, term)
        elif kind == "restart" and step % 3 == 0:
            index = journal.last_index + rng.randrange(-1, 30)
            shutil.copytree(tmp_path / "live", tmp_path / f"mid{step}")
            journal.restart_at(b"\x01", max(index, journal.first_index), term)
        else:
            journal.setCurrentTerm(term, rng.choice(["m1", "m2", None]))
            fill(journal, journal.last_index + 1, rng.randrange(1, 5), term)
        unsynced = tmp_path / f"before{step}"
        shutil.copytree(tmp_path / "live", unsynced)
        journal.sync()
        after = view(journal)
        synced = tmp_path / f"after{step}"
        shutil.copytree(tmp_path / "live", synced)
        assert view(opened(unsynced)) in (before, after)
        assert view(opened(synced)) == after


class CountingStore:
    """A store that remembers what it was asked to do."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def load(self):
        """Empty."""
        return Meta(), [], 1

    def commit(self, change: Change) -> None:
        """Remember."""
        self.changes.append(change)

    def close(self) -> None:
        """Nothing."""


def test_only_what_changed_is_written() -> None:
    """A sync puts the entries since the last one, a cut and what replaces it are one change, hints never sync."""
    store = CountingStore()
    journal = Journal(store)
    fill(journal, 1, 10, 1)
    journal.sync()
    fill(journal, 11, 2, 1)
    journal.sync()
    assert [entry[1] for entry in store.changes[-1].put] == [11, 12]
    journal.deleteEntriesFrom(5)
    fill(journal, 6, 2, 2)
    journal.sync()
    change = store.changes[-1]
    assert [entry[1] for entry in change.put] == [6, 7]
    assert change.remove == [(8, 12)]
    journal.setRaftCommitIndex(7)
    journal.sync()
    assert len(store.changes) == 3
    journal.onOneSecondTimer()
    assert store.changes[-1].meta.commit == 7
    assert not store.changes[-1].put


def test_a_long_head_goes_in_bounded_steps() -> None:
    """Compaction removes at most REMOVE_LIMIT entries in one change, and goes on with the next ones."""
    store = CountingStore()
    journal = Journal(store)
    fill(journal, 1, 3 * REMOVE_LIMIT, 1)
    journal.sync()
    journal.drop_covered(3 * REMOVE_LIMIT, 0, 0)
    removed = 0
    while journal.soft_dirty:
        journal.onOneSecondTimer()
        removed += sum(high - low + 1 for low, high in store.changes[-1].remove)
        assert removed <= (len(store.changes) - 1) * REMOVE_LIMIT
    assert removed == 3 * REMOVE_LIMIT - 1


def test_the_map_grows(tmp_path: Path, opened: Opened) -> None:
    """More bytes than the first map holds are stored and found again."""
    journal = opened(tmp_path)
    block = b"\x00\x01" + bytes(7 << 20)
    journal.add(b"\x01", 1, 0)
    for index in range(2, 16):
        journal.add(block, index, 1)
        journal.sync()
    opened.close()
    assert opened(tmp_path).last_index == 15


def damage(directory: Path, key: bytes) -> None:
    """Flip a bit of one record behind LMDB's back."""
    with lmdb.open(str(directory)) as env, env.begin(write=True) as txn:
        value = bytearray(txn.get(key) or b"")
        value[-1] ^= 1
        txn.put(key, bytes(value))


@pytest.mark.parametrize(("key", "name"), [(entry_key(7), "entry 7"), (b"m", "meta"), (b"i", "identity")])
def test_a_flipped_bit_is_refused_by_name(tmp_path: Path, opened: Opened, key: bytes, name: str) -> None:
    """A record whose checksum fails is named, with what the operator can do."""
    fill(journal := opened(tmp_path), 1, 10, 1)
    journal.sync()
    opened.close()
    damage(tmp_path, key)
    with pytest.raises(StorageDamaged, match=f"{name} record.*move this master's whole directory"):
        opened(tmp_path)


@pytest.mark.parametrize("gone", [1, 5, 10])
def test_a_missing_entry_is_refused(tmp_path: Path, opened: Opened, gone: int) -> None:
    """An entry that the meta record promises and that is not there is damage, at either end too."""
    fill(journal := opened(tmp_path), 1, 10, 1)
    journal.sync()
    opened.close()
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.delete(entry_key(gone))
    with pytest.raises(StorageDamaged, match=f"entry {gone} is wrong or missing"):
        opened(tmp_path)


def test_another_nodes_journal_is_refused(tmp_path: Path, opened: Opened) -> None:
    """A journal belongs to one node of one cluster."""
    fill(journal := opened(tmp_path), 1, 1, 0)
    journal.sync()
    opened.close()
    with pytest.raises(SettingsRefused, match="'m2' of cluster 'c1'"):
        opened(tmp_path, node="m2")
    with pytest.raises(SettingsRefused, match="own directory"):
        opened(tmp_path, cluster="c2")


def test_a_torn_file_is_refused_or_whole(tmp_path: Path, opened: Opened) -> None:
    """A journal file cut short never opens as another log."""
    fill(journal := opened(tmp_path / "whole"), 1, 2000, 1)
    journal.sync()
    kept = view(journal)
    opened.close()
    size = (tmp_path / "whole" / "data.mdb").stat().st_size
    for part in (0, 100, 4096, size // 4096 // 2 * 4096):
        torn = tmp_path / f"torn{part}"
        shutil.copytree(tmp_path / "whole", torn)
        with (torn / "data.mdb").open("r+b") as file:
            file.truncate(part)
        try:
            found = view(opened(torn))
        except StorageDamaged:
            continue
        assert part == 0  # LMDB takes an empty file for a new environment: the node is then as one with an empty disk
        assert found != kept


def test_golden_records() -> None:
    """The stored bytes of a meta and an entry record are those on record."""
    meta = sealed(b"m", meta_body(Meta(7, "m2", 256, 250, 259)))
    entry = sealed(entry_key(258), (6).to_bytes(8, "little") + b"\x00\x01register")
    assert meta == bytes.fromhex((GOLDEN / "raft_journal_meta.hex").read_text())
    assert entry_key(258) + entry == bytes.fromhex((GOLDEN / "raft_journal_entry.hex").read_text())


def test_a37_the_names_of_a_new_journal_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is in a new journal, each name on the way to it is synced: a file system that keeps to what was
    asked for shows after a power cut no empty log where a member has voted. A start that was killed before that is
    made good by the next one."""
    synced: dict[Path, set[str]] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            synced[path] = set(os.listdir(path))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = tmp_path / "made" / "m1" / "journal"
    LmdbStore(journal, "c1", "m1").close()
    ways = [(journal, "data.mdb"), (journal.parent, "journal"), (journal.parent.parent, "m1"), (tmp_path, "made")]
    assert [name for folder, name in ways if name not in synced.get(folder, ())] == []
    synced.clear()
    store = LmdbStore(journal, "c1", "m1")
    assert [name for folder, name in ways[:2] if name not in synced.get(folder, ())] == []
    store.commit(Change(Meta(1, "m2", 0, 1, 0), []))
    store.close()
    synced.clear()
    LmdbStore(journal, "c1", "m1").close()
    assert synced == {}


def test_a36_a_journal_that_is_whole_is_never_called_damaged(tmp_path: Path) -> None:
    """After each of many random changes, of entries of a few bytes and of some pages, cut off at both ends or left in
    the middle of a transaction, the pages of the file are sound."""
    rng = random.Random(3)
    store = LmdbStore(tmp_path, "c1", "m1")
    first, last = 1, 0
    for _ in range(600):
        remove, put = [], []
        kind = rng.random()
        if kind < 0.15 and last > first:  # its tail is replaced
            cut = rng.randrange(first + 1, last + 1)
            remove, last = [(cut, last)], cut - 1
        elif kind < 0.35 and last > first:
            low, first = first, rng.randrange(first, min(last, first + REMOVE_LIMIT) + 1)
            remove = [(low, first - 1)]
        size = rng.choice([10, 10, 300, 2_000, 5_000, 40_000])
        for _ in range(rng.choice([0, 1, 1, 5, 200]) if size < 40_000 else 2):
            last += 1
            put.append((rng.randbytes(rng.randrange(size)), last, 1))
        change = Change(Meta(1, "m2", first, first, last), put, remove)
        if rng.random() < 0.1:
            with store._env.begin(write=True) as txn:
                store._write(txn, change)
                txn.abort()
        store.commit(change)
        PageCheck(memoryview((tmp_path / "data.mdb").read_bytes()), name="journal").run()
    store.close()
    LmdbStore(tmp_path, "c1", "m1").close()
