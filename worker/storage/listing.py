"""Lists what lies in a storage directory: the other half of the comparison with the index.

One scandir per folder, one stat per sealed file; nothing is opened and nothing changed. Sealed files are only added up
(see check.ShuffleSum); what is not sealed, and what has no name of ours, is returned one by one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.ids import ShuffleKey
from holdfast.worker.storage import layout
from holdfast.worker.storage.check import ShuffleSum, file_digest
from holdfast.worker.storage.records import encode_shuffle

_REST = struct.Struct(">IQI")
_LENGTH = struct.Struct("<Q")
_KEY_AND_LENGTH = struct.Struct(">24sIQI8s")


@dataclass(slots=True)
class Listing:
    """What was found below data/."""

    shuffles: dict[ShuffleKey, ShuffleSum] = field(default_factory=dict)
    #: files that are open or failed, with their length
    unsealed: list[tuple[layout.FileName, Path, int]] = field(default_factory=list)
    #: names that are not ours
    unknown: list[Path] = field(default_factory=list)


def list_data(root: Path) -> Listing:
    """List a storage directory; raises OSError if it cannot be read."""
    listing = Listing()
    for shuffle, folder in _shuffle_folders(root, listing):
        _list_shuffle(shuffle, folder, listing)
    return listing


def _shuffle_folders(root: Path, listing: Listing) -> Iterator[tuple[ShuffleKey, Path]]:
    data = root / layout.DATA
    for top in sorted(data.iterdir()) if data.is_dir() else ():
        instance = layout.parse_instance(top.name)
        if instance is None or not top.is_dir():
            listing.unknown.append(top)
            continue
        for folder in sorted(top.iterdir()):
            shuffle = layout.parse_shuffle(instance, folder.name)
            if shuffle is None or not folder.is_dir():
                listing.unknown.append(folder)
            else:
                yield shuffle, folder


def _list_shuffle(shuffle: ShuffleKey, folder: Path, listing: Listing) -> None:
    total = listing.shuffles[shuffle] = ShuffleSum()
    prefix = encode_shuffle(shuffle)
    pack, length_of, parse = _KEY_AND_LENGTH.pack, _LENGTH.pack, layout.parse_sealed
    files = size = digest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.endswith(layout.SEALED_SUFFIX):
                _list_other(shuffle, Path(entry.path), listing)
                continue
            try:
                map_id, attempt, epoch = parse(name)
                length = entry.stat(follow_symlinks=False).st_size
                digest += file_digest(pack(prefix, map_id, attempt, epoch, length_of(length)))
            except (ValueError, struct.error):
                listing.unknown.append(Path(entry.path))
                continue
            files += 1
            size += length
    total.files, total.size_bytes, total.digest = files, size, digest


def _list_other(shuffle: ShuffleKey, path: Path, listing: Listing) -> None:
    name = layout.parse_file(shuffle, path.name)
    if name is None:
        listing.unknown.append(path)
    else:
        listing.unsealed.append((name, path, path.lstat().st_size))


def list_files(shuffle: ShuffleKey, folder: Path) -> dict[str, tuple[layout.FileName, int]]:
    """Every file of ours in a shuffle's folder with its length, by name; the slow form, for when sums differ."""
    found = {}
    if folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                name = layout.parse_file(shuffle, entry.name)
                if name is not None:
                    found[entry.name] = name, entry.stat(follow_symlinks=False).st_size
    return found
