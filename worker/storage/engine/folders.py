"""The folders of shuffles below data/: which are there, and whose names are not on the disk yet. Loop thread only.

What has to be synced with a folder is given out as a value, and taken back when that has been done: threads see no
table. `root` is there and is never made: where it is missing the disk was unmounted, and what lies below is another
one. Called by directory.py, sealing.py and moving.py.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.worker.storage.env.interfaces import Files

#: How often a folder is made again that goes, with the one above it, while it is made.
TRIES_MAX = 8

#: Folders to sync, in this order, each with the number of what was made in it last.
Unsynced = tuple[tuple[Path, int], ...]


class Folders:
    """Of one directory."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._root = root
        self._known: set[Path] = set()
        #: folders in which others were made since they were synced last, each with a number of its own
        self._unsynced: dict[Path, int] = {}
        self._made = 0

    def make(self, folder: Path) -> None:
        """Make a folder and those above it, below the root; raises OSError."""
        for left in reversed(range(TRIES_MAX)):
            try:
                self._make(folder)
                return
            except FileNotFoundError:  # the one above was empty, and a thread removed it this moment
                if not left or not self._files.exists(self._root):
                    raise
                self._known.difference_update((folder, *folder.parents))

    def _make(self, folder: Path) -> None:
        if folder in self._known or folder == self._root:
            return
        self._make(folder.parent)
        self._files.make_folder(folder)
        self._made += 1
        self._unsynced[folder.parent] = self._made  # who made it may have been killed before its name was synced
        self._known.add(folder)

    def unsynced(self, folder: Path) -> Unsynced:
        """What has to be synced to bring the names in a folder to the disk, and its own and those of the folders it
        lies in, if they are new. What belongs to others is left alone: it may be gone any moment."""
        above = [(one, number) for one in folder.parents if (number := self._unsynced.get(one)) is not None]
        return (folder, 0), *above

    def synced(self, done: Unsynced) -> None:
        """That was done; what was made in them meanwhile is still to come."""
        for folder, number in done:
            if self._unsynced.get(folder) == number:
                del self._unsynced[folder]

    def known(self) -> set[Path]:
        """The folders that were made or used since the start."""
        return self._known.copy()

    def look_again(self) -> None:
        """The disk was away: whether a folder is there is asked again."""
        self._known.clear()

    def leave(self, folder: Path) -> None:
        """A folder and, if it is empty then, the one above are about to be removed: whoever needs them makes them."""
        self._known.difference_update((folder, folder.parent))

    def came_back(self, folder: Path) -> None:
        """It could not be removed."""
        self._known.add(folder)

    def removed(self, folder: Path) -> None:
        """A folder is gone, unless it was made again meanwhile."""
        if folder not in self._known:
            self._unsynced.pop(folder, None)


def sync_folders(files: Files, folders: Unsynced) -> None:
    """Bring names to the disk; in a thread. Raises OSError."""
    for folder, _ in folders:
        files.sync_folder(folder)


def remove_folders(files: Files, folder: Path) -> list[Path]:
    """Remove a folder and the one above, as far as they are empty, and return those that are gone; in a thread."""
    gone = []
    for one in (folder, folder.parent):
        try:
            files.remove_folder(one)
        except FileNotFoundError:
            pass  # it is gone already
        except OSError:
            break  # another shuffle is in it, or a file that is being made this moment
        gone.append(one)
    return gone
