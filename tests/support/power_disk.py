"""A disk that loses its power: what was not synced may be there or not, each sector and each name for itself.

It keeps beside the files what of them is on the disk for certain, and every version that was written since. `cut` makes
a tree as it may be found afterwards: of each sector that was not synced some version, in no order; of each folder that
was not synced its first so many changes of names, whatever else is there; a file as long as it ever was since its last
sync. A sector is never torn, an index transaction that was committed is there (both are promised by the hardware and
LMDB). Names may be on the disk long before the bytes of their files, as every file system may have it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.worker.storage import names
from holdfast.worker.storage.env.interfaces import Handle, Name
from tests.support.storage_env import Disk
from tests.support.storage_faults import KilledError

SECTOR_BYTES = 512


@dataclass(eq=False)
class _File:
    """What is on the disk of a file, and what may be."""

    sectors: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    #: since the last sync: versions of sectors, oldest first, and lengths
    written: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def wrote(self, fd: int, offset: int, size: int) -> None:
        """Take in what the file has there now."""
        for number in range(offset // SECTOR_BYTES, -(-(offset + size) // SECTOR_BYTES)):
            found = os.pread(fd, SECTOR_BYTES, number * SECTOR_BYTES)
            self.written.setdefault(number, []).append(found.ljust(SECTOR_BYTES, b"\0"))
        self.sizes.append(max(offset + size, *self.sizes[-1:], self.size if not self.sizes else 0))

    def synced(self) -> None:
        """All of it is on the disk."""
        self.sectors.update({number: versions[-1] for number, versions in self.written.items()})
        self.size = self.sizes[-1] if self.sizes else self.size
        self.written, self.sizes = {}, []

    def make(self, path: Path, rng: random.Random) -> None:
        """Write it as it may be found."""
        size = rng.choice([self.size, *self.sizes, *self.sizes[-1:] * 4])
        chosen = dict(self.sectors)
        keep = rng.random()  # of some files nearly everything was written, of others nearly nothing
        for number, versions in self.written.items():
            if rng.random() < keep:
                chosen[number] = rng.choice([*versions, versions[-1]])
        with path.open("wb") as file:
            for number, data in chosen.items():
                at = number * SECTOR_BYTES
                if at < size:
                    file.seek(at)
                    file.write(data[: size - at])
            file.truncate(size)


@dataclass(eq=False)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    #: since the last sync: what each change made of names; None: gone
    changes: list[dict[str, _File | _Folder | None]] = field(default_factory=list)

    def now(self, count: int | None = None) -> dict[str, _File | _Folder]:
        """The names after so many changes."""
        found: dict[str, _File | _Folder | None] = dict(self.names)
        for change in self.changes[:count]:
            found.update(change)
        return {name: node for name, node in found.items() if node is not None}

    def synced(self) -> None:
        self.names, self.changes = self.now(), []

    def make(self, path: Path, rng: random.Random) -> None:
        """Make the folder as it may be found."""
        path.mkdir(exist_ok=True)
        for name, node in self.now(rng.randint(0, len(self.changes))).items():
            node.make(path / name, rng)


class PowerDisk(Disk):
    """Every step of a storage directory, until the power goes after `kill_after` of them."""

    def __init__(self, root: Path, kill_after: int | None = None, before: PowerDisk | None = None) -> None:
        """`before` is the disk until a kill in the same boot, whose files were copied to `root`."""
        self.kill_after = kill_after
        self.steps = 0
        self._root = root
        self._tree: _Folder = before._tree if before is not None else self._load(root)

    def cut(self, target: Path, rng: random.Random) -> None:
        """Make in `target` what may be found when the power is back."""
        self._tree.make(target, rng)
        for folder in self._root.glob(f"*/{names.INDEX}"):
            shutil.copytree(folder, target / folder.relative_to(self._root), dirs_exist_ok=True)

    def _load(self, path: Path) -> _Folder:
        """What is there at the start is on the disk."""
        folder = _Folder()
        for below in path.iterdir():
            if below.name == names.INDEX:
                folder.names[below.name] = _Folder()  # what is in it is LMDB's
            elif below.is_dir():
                folder.names[below.name] = self._load(below)
            elif below.name != names.LOCK:
                folder.names[below.name] = file = _File()
                with below.open("rb") as opened:
                    file.wrote(opened.fileno(), 0, below.stat().st_size)
                file.synced()
        return folder

    def _folder(self, path: Path) -> _Folder:
        folder = self._tree
        for name in path.relative_to(self._root).parts:
            below = folder.now()[name]
            assert isinstance(below, _Folder), path
            folder = below
        return folder

    def _file(self, path: Path) -> _File | None:
        file = self._folder(path.parent).now().get(path.name)
        return file if isinstance(file, _File) else None

    def _step(self) -> None:
        self.steps += 1
        if self.kill_after is not None and self.steps > self.kill_after:
            raise KilledError

    def _wrote(self, handle: Handle, offset: int, size: int) -> None:
        file = self._file(_path_of(handle))
        if file is not None:  # else it was removed
            file.wrote(handle.fd, offset, size)

    def create(self, path: Name) -> Handle:
        self._step()
        handle = super().create(path)
        path = Path(path)
        self._folder(path.parent).changes.append({path.name: _File()})
        return handle

    def write(self, handle: Handle, data: bytes | memoryview, offset: int) -> None:
        self._step()
        super().write(handle, data, offset)
        self._wrote(handle, offset, len(data))

    def write_parts(self, handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        self._step()
        super().write_parts(handle, parts, size, offset)
        self._wrote(handle, offset, size)

    def sync(self, handle: Handle) -> None:
        self._step()
        super().sync(handle)
        file = self._file(_path_of(handle))
        if file is not None:
            file.synced()

    def sync_folder(self, path: Name) -> None:
        self._step()
        super().sync_folder(path)
        self._folder(Path(path)).synced()

    def make_folder(self, path: Name) -> bool:
        self._step()
        path = Path(path)
        made = super().make_folder(path)
        if made:
            self._folder(path.parent).changes.append({path.name: _Folder()})
        return made

    def rename(self, source: Name, target: Name) -> None:
        self._step()
        source, target = Path(source), Path(target)
        node = self._folder(source.parent).now()[source.name]
        super().rename(source, target)
        if source.parent == target.parent:
            self._folder(source.parent).changes.append({source.name: None, target.name: node})
        else:
            self._folder(target.parent).changes.append({target.name: node})
            self._folder(source.parent).changes.append({source.name: None})

    def remove(self, path: Name) -> None:
        self._step()
        path = Path(path)
        if path.exists():
            self._folder(path.parent).changes.append({path.name: None})
        super().remove(path)

    def truncate(self, path: Name, size: int) -> None:
        self._step()
        super().truncate(path, size)
        path = Path(path)
        file = self._file(path)
        assert file is not None, path
        for number in [number for number in {*file.sectors, *file.written} if (number + 1) * SECTOR_BYTES > size]:
            left = max(0, size - number * SECTOR_BYTES)
            latest = file.written.get(number, [file.sectors.get(number, bytes(SECTOR_BYTES))])[-1]
            file.written.setdefault(number, []).append(latest[:left].ljust(SECTOR_BYTES, b"\0"))
        file.sizes.append(size)

    def commit(self, transaction: Callable[[], None]) -> None:
        self._step()
        super().commit(transaction)


def _path_of(handle: Handle) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{handle.fd}"))
