"""A master's state as one file, and an empty directory made from it: `holdfast backup` and `holdfast restore`.

Rules: a backup is a copy of one master's journal and snapshot that belong together, checked as a start checks them,
taken while the master runs or after its end; it has all that the master had on disk (a follower may lack what the
leader acknowledged a moment ago). A restore only ever fills a directory that has nothing: it writes the same log
under the name of this master, without the vote of the one that it came from. So all masters of a cluster restored
from one file begin with one log, and the elected one has all of it. What was added to the log after the backup
is lost, and its numbers are given again: so a restore records the end of the backup, and the first leader after that
place gives the state another id (docs/internals/adr/0030-state-ids.md). The file is a tar archive of `about.json`,
`journal/data.mdb` and, where there is one, `snapshot`. Run as `python -m holdfast.master.backup backup|restore FILE
--config FILE`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb

from holdfast.common.config import config as configuration
from holdfast.common.errors import ConfigError
from holdfast.common.strict_json import read_json
from holdfast.common.system.files import make_folders, read_small_text, sync_directory
from holdfast.common.version import VERSION
from holdfast.master.raft.codec import Entry
from holdfast.master.raft.errors import RaftError, StorageDamaged
from holdfast.master.raft.journal import Change, Meta
from holdfast.master.raft.journal_store import LmdbStore
from holdfast.master.raft.snapshot import FileSnapshots, SnapshotId

FORMAT = 1
_ABOUT, _JOURNAL, _SNAPSHOT = "about.json", "journal/data.mdb", "snapshot"
#: In a Raft directory that was filled from a backup: up to which place of the log it was, as decimal digits.
RESTORED = "restored"
#: A new snapshot comes after many thousand commands, so that the second try meets none.
_TRIES = 5

Document = dict[str, Any]


def back_up(directory: Path, cluster_id: str, name: str, file: Path) -> Document:
    """Copy the Raft `directory` of master `name` to `file`; return what about.json says.

    Raises ConfigError if there is nothing to copy or the file is there already, StorageDamaged if it is not whole.
    """
    if not (directory / _JOURNAL).is_file():
        raise ConfigError(f"{directory} has no journal: give the configuration of a master that ran on this machine")
    if file.exists():
        raise ConfigError(f"{file} exists: a backup replaces nothing, choose another name")
    if not file.parent.is_dir():
        raise ConfigError(f"there is no directory {file.parent}: make it, or name a file in one that is there")
    with _scratch(file.parent, ".holdfast-backup-") as scratch:
        _copy(directory, scratch)
        meta, _, last = _checked(scratch, cluster_id, name)
        about: Document = {
            "format": FORMAT,
            "cluster_id": cluster_id,
            "master": name,
            "term": meta.term,
            "index": max(meta.last, last.index if last else 0),
            "version": VERSION,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        digests = {part: _digest(scratch / part) for part in (_JOURNAL, _SNAPSHOT) if (scratch / part).exists()}
        (scratch / _ABOUT).write_text(json.dumps({**about, "digests": digests}), "utf-8")
        _pack(scratch, scratch / "packed", file)
    return about


def restore(file: Path, directory: Path, cluster_id: str, name: str) -> Document:
    """Fill the empty Raft `directory` of master `name` from `file`; return what about.json says.

    Raises ConfigError if the directory has anything or the file is another cluster's, StorageDamaged if it is damaged.
    """
    if directory.exists() and any(path.name != "lock" for path in directory.iterdir()):
        raise ConfigError(f"{directory} is not empty: move its files away; a restore replaces nothing")
    make_folders(directory.parent)
    with _scratch(directory.parent, ".holdfast-restore-") as scratch:
        about = _unpack(file, scratch)
        if about["cluster_id"] != cluster_id:
            raise ConfigError(f"{file} is of cluster {about['cluster_id']}, and this is {cluster_id}")
        meta, entries, last = _checked(scratch, cluster_id, about["master"])
        directory.mkdir(mode=0o700, exist_ok=True)
        (scratch / RESTORED).write_text(f"{about['index']}\n", "ascii")
        _durably(scratch / RESTORED, directory / RESTORED)  # first: no master may start from the rest without it
        if last is not None:
            (directory / "snapshots").mkdir(mode=0o700)
            _durably(scratch / _SNAPSHOT, directory / "snapshots" / "snapshot")
        store = LmdbStore(directory / "journal", cluster_id, name)
        try:
            store.commit(Change(Meta(meta.term, None, meta.commit, meta.first, meta.last), entries))
        finally:
            store.close()
        sync_directory(directory)
        sync_directory(directory.parent)
    return about


def restored_index(directory: Path) -> int:
    """Return up to which place of the log a Raft directory comes from a backup; 0 if it does not.

    Raises ConfigError if the note of that cannot be read: numbers could be given twice.
    """
    note = directory / RESTORED
    try:
        return int(note.read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise ConfigError(f"{note} cannot be read ({error}): restore this master again") from error


@contextlib.contextmanager
def _scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """A directory that is removed at the end; those left by killed processes are removed now. Each is locked as
    long as its process lives."""
    for left in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as place, _locked(Path(place)):
        yield Path(place)


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the lock of a directory. Raises OSError if another process does."""
    guard = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(guard)


def _copy(directory: Path, scratch: Path) -> None:
    """Copy journal and snapshot, with no new snapshot between the two."""
    snapshot = directory / "snapshots" / "snapshot"
    (scratch / "journal").mkdir()
    for _ in range(_TRIES):
        before = _identity(snapshot)
        if before is not None:
            shutil.copyfile(snapshot, scratch / _SNAPSHOT)
        (scratch / _JOURNAL).unlink(missing_ok=True)
        with lmdb.open(str(directory / "journal"), readonly=True, max_dbs=0) as environment:
            environment.copy(str(scratch / "journal"), compact=True)
        if _identity(snapshot) == before:
            return
    raise StorageDamaged(f"{snapshot} changes faster than it can be copied; try another master")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _checked(scratch: Path, cluster_id: str, name: str) -> tuple[Meta, list[Entry], SnapshotId | None]:
    """Read the copy as a start would; journal and snapshot have to continue one another."""
    store = LmdbStore(scratch / "journal", cluster_id, name)
    try:
        meta, entries, _ = store.load()
    finally:
        store.close()
    if not (scratch / _SNAPSHOT).exists():
        if meta.first > 1:
            raise StorageDamaged("the journal was cut after a snapshot, and has no snapshot")
        return meta, entries, None
    (scratch / "snapshots").mkdir(exist_ok=True)
    last = FileSnapshots(scratch / "snapshots", cluster_id).verify(scratch / _SNAPSHOT)
    if entries and meta.first > last.index:
        raise StorageDamaged(f"the snapshot ends at {last.index} and the journal begins at {meta.first}")
    return meta, entries, last


def _pack(scratch: Path, packed: Path, file: Path) -> None:
    with tarfile.open(packed, "w") as archive:
        for name in (_ABOUT, _JOURNAL, _SNAPSHOT):
            if (scratch / name).exists():
                archive.add(scratch / name, name, filter=_plain)
    packed.chmod(0o600)
    _durably(packed, file)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _unpack(file: Path, scratch: Path) -> Document:
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                if member.name not in (_ABOUT, _JOURNAL, _SNAPSHOT) or not member.isreg():
                    raise ConfigError(f"{file} holds {member.name!r}, which no backup has")
                target = scratch / member.name  # one of three; nothing but its bytes is taken from the archive
                target.parent.mkdir(exist_ok=True)
                with archive.extractfile(member) as packed, target.open("wb") as unpacked:  # type: ignore[union-attr]
                    shutil.copyfileobj(packed, unpacked)
        about: Document = read_json((scratch / _ABOUT).read_bytes())
        if about["format"] != FORMAT or not (scratch / _JOURNAL).exists():
            raise ConfigError(
                f"{file} has format {about['format']}, this build reads {FORMAT}: use the build that made it"
            )
        for part, digest in about["digests"].items():
            if part not in (_JOURNAL, _SNAPSHOT) or _digest(scratch / part) != digest:
                raise StorageDamaged(f"{file} is damaged: {part} is not what was backed up; take another backup")
        return {key: about[key] for key in ("format", "cluster_id", "master", "term", "index", "version", "made")}
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is no backup of a master, or not a whole one: {error}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as part:
        return hashlib.file_digest(part, "blake2b").hexdigest()


def _durably(source: Path, target: Path) -> None:
    """Move or copy a file to its name, whole and synced."""
    with source.open("rb") as made:
        os.fsync(made.fileno())
    try:
        source.rename(target)
    except OSError:  # another file system
        part = target.with_name(target.name + ".part")
        shutil.copyfile(source, part)
        part.chmod(0o600)
        with part.open("rb") as made:
            os.fsync(made.fileno())
        part.rename(target)
    sync_directory(target.parent)


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.master.backup", description=__doc__)
    parser.add_argument("what", choices=("backup", "restore"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        text = read_small_text(asked.config, "the configuration")
        config = configuration.parse(text, os.environ, str(asked.config))
        configuration.require_master(config)
        directory, name = Path(config.master.directory), config.master.name
        act = (
            back_up(directory, config.cluster.id, name, asked.file)
            if asked.what == "backup"
            else restore(asked.file, directory, config.cluster.id, name)
        )
    except ConfigError as error:
        return _fail(asked, str(error), 2)
    except RaftError as error:
        return _fail(asked, str(error), 1)
    except (OSError, lmdb.Error) as error:
        place = asked.file.parent if asked.what == "backup" else "the folder of the master's directory"
        remedy = f"no partial file was left; check that {place} has room and is writable, then repeat"
        return _fail(asked, f"{error}: {remedy}", 1)
    where = f"{act['master']} of cluster {act['cluster_id']} up to index {act['index']}, term {act['term']}"
    document = {**act, "file": str(asked.file), "directory": str(directory)}
    done = f"{asked.file}: {where}" if asked.what == "backup" else f"{directory}: {where}, for {name}; start it"
    sys.stdout.write((json.dumps(document) if asked.json else done) + "\n")
    return 0


def _fail(asked: argparse.Namespace, reason: str, status: int) -> int:
    if asked.json:
        sys.stdout.write(json.dumps({"error": reason, "exit": status}) + "\n")
    sys.stderr.writelines(f"holdfast {asked.what}: {line}\n" for line in reason.splitlines())
    return status


if __name__ == "__main__":
    sys.exit(main())
