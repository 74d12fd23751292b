"""Rounds of syncs: what is synced together, and how; the loop says when. See unsealed.py."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.worker.core.write.epochs import Life
from holdfast.worker.storage.engine.answers import failed_copy
from holdfast.worker.storage.engine.folders import Unsynced, sync_folders
from holdfast.worker.storage.engine.partition import PartitionCopy
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files, Handle
from holdfast.worker.storage.layout import OpenKey
from holdfast.worker.storage.log.push_log import Segment

#: This worker's copy of an epoch, of a partition or of a map.
Copy = PartitionCopy | MapFileWriter


class Wanted(NamedTuple):
    """What one synced acknowledgement waits for, in the order in which it came: a set has another one in every run."""

    #: copies that took something of it
    copies: dict[Copy, None]
    #: what has to be synced for them
    segments: dict[Segment, None]
    files: dict[Copy, None]


#: The epochs of what was wanted that are not on the disk, and why: their copies are given up, if that was tried.
Missing = Mapping[OpenKey, Exception]


#: Copies that could not be brought to the disk, and why.
Broken = dict[Copy, Exception]


class Waiting(NamedTuple):
    """Who waits for a round, and for which copies."""

    copies: dict[Copy, None]
    future: Future[Missing]

    def answer(self, missing: Missing, more: Future[Missing] | None) -> None:
        """The round is over; if more has to be synced, it is answered when that is over, too."""
        if more is None:
            self.future.set_result(missing)
        else:
            more.add_done_callback(lambda done: self.future.set_result({**missing, **done.result()}))


@dataclass(slots=True)
class Round:
    """Syncs that are done together, for all who wait."""

    segments: dict[Segment, None] = field(default_factory=dict)
    files: dict[Copy, None] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    #: what the round before could not bring to the disk: another sync of it would tell that all is well
    broken: Broken = field(default_factory=dict)
    #: copies that were flushed while it ran, each from these segments
    flushed: dict[Copy, set[int]] = field(default_factory=dict)

    def add(self, wanted: Wanted) -> Future[Missing]:
        """Sync this, too."""
        self.segments |= wanted.segments
        self.files |= wanted.files
        future: Future[Missing] = Future()
        self.waiting.append(Waiting(wanted.copies, future))
        return future

    def copies(self) -> set[Copy]:
        """All copies of which something is synced."""
        return set(self.files).union(*[one.copies for one in self.waiting])


def map_synced(writer: MapFileWriter, done: Future[Missing]) -> Future[None]:
    """What a round comes to for who waits for one map file."""
    future: Future[None] = Future()

    def synced(done: Future[Missing]) -> None:
        error = done.result().get(writer.key)
        if error is not None:
            future.set_exception(failed_copy(writer.key, f"cannot sync it ({error})"))
        elif writer.life in (Life.FAILED, Life.GONE):
            future.set_exception(writer.refusal())
        else:
            future.set_result(None)

    done.add_done_callback(synced)
    return future


class SyncSegment(NamedTuple):
    """What a thread needs to sync a segment."""

    handle: Handle
    failed: bool
    #: where its name is not on the disk yet
    folders: tuple[Path, ...]


class SyncFile(NamedTuple):
    """The same of the file of a copy, open or by its path, and its folder, if its name is not on the disk yet."""

    file: Handle | str
    folders: Unsynced


class Synced(NamedTuple):
    """What became of one of them."""

    error: Exception | None = None
    #: there is no such file
    missing: Exception | None = None


def sync_all(files: Files, segments: Sequence[SyncSegment], copies: Sequence[SyncFile]) -> list[Synced]:
    """In a thread. Each that fails says so, and keeps no other from its sync."""
    outcomes = [_sync_segment(files, one) for one in segments]
    folders: dict[Path | None, Exception | None] = {}
    for one in copies:
        missing = None
        try:
            try:
                files.sync(files.open(one.file, write=True) if isinstance(one.file, str) else one.file)
            except FileNotFoundError as error:
                missing = error  # dropped
            outcomes.append(Synced(_sync_folder(files, one.folders, folders), missing))
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            outcomes.append(Synced(error))
    return outcomes


def _sync_segment(files: Files, one: SyncSegment) -> Synced:
    try:
        if one.failed:
            raise OSError(errno.EIO, "an earlier sync failed")
        files.sync(one.handle)
        for folder in one.folders:
            files.sync_folder(folder)
    except Exception as error:  # noqa: BLE001 - the same
        return Synced(error)
    return Synced()


def _sync_folder(files: Files, folders: Unsynced, done: dict[Path | None, Exception | None]) -> Exception | None:
    """Once in a round; what was wrong with it is wrong for all that lies in it."""
    folder = folders[0][0] if folders else None
    if folder not in done:
        try:
            sync_folders(files, folders)
            done[folder] = None
        except OSError as error:
            done[folder] = error
    return done[folder]
