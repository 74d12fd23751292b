"""One trial: a directory, one damage, and everything that must still hold. See run.py."""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.formats.batch import parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.ids import MapFileKey, PartitionId
from holdfast.common.statuses import Status
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.index.records import EpochRecord
from holdfast.worker.storage.offline.offline import open_offline
from holdfast.worker.storage.offline.verify import Finding, Severity, verify_directory
from holdfast.worker.storage.store import Store
from tests.support.map_data import MapContent, Pieces, file_key, make_content, shuffle_key
from tests.support.storage_data import append_all, open_store, read, write
from tests.support.storage_env import CheckHere

PARTITIONS = {0: 3, 1: 40, 2: 700}


@dataclass(frozen=True)
class Damage:
    """What is done to one file: a byte xored with `mask`, or, if mask is 0, everything from `offset` cut off."""

    path: str
    offset: int
    mask: int

    def __str__(self) -> str:
        what = f"byte {self.offset} ^ {self.mask:#04x}" if self.mask else f"cut to {self.offset} bytes"
        return f"{self.path}: {what}"

    def do(self, root: Path) -> None:
        """Damage the file."""
        path = root / self.path
        data = bytearray(path.read_bytes())
        if self.mask:
            data[self.offset] ^= self.mask
        else:
            del data[self.offset :]
        path.write_bytes(data)


@dataclass(frozen=True)
class Outcome:
    """What came of a trial; `breach` is empty unless a promise was broken."""

    damage: Damage
    breach: str
    seen: str


def contents() -> list[MapContent]:
    """What the directory holds: short and long index records, broadcast regions, two shuffles."""
    made = []
    for number in range(18):
        key = file_key(shuffle_key(bytes(16), number % 2), number)
        size = 40 if number % 3 == 2 else 400
        made.append(make_content(key, PARTITIONS[number % 3], 2, size, broadcast=number % 4 == 0))
    return made


def make_directory(root: Path) -> dict[MapFileKey, EpochRecord]:
    """Make the directory that every trial starts from; free pages in the index and an unsealed file included."""
    with patch("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere)):
        store = open_store(root)
        for content in contents():
            write(store, content)
            passing = make_content(file_key(shuffle_key(bytes(16), 9), content.key.map), 300, 1, 10)
            write(store, passing)
        store.forget([shuffle_key(bytes(16), 9)]).result(30)
        append_all(store, make_content(file_key(shuffle_key(bytes(16), 0), 99)))
        store.close()
    return dict(open_offline(str(root)).maps)


def choose(chance: random.Random, root: Path, *, cut: bool) -> Damage:
    """Draw a damage: half of them in the index, most others in data files, some in the small files."""
    data = sorted(str(path.relative_to(root)) for path in root.rglob("*.map"))
    kind = chance.random()
    path = names.INDEX_DATA if kind < 0.5 else chance.choice(data) if kind < 0.94 else chance.choice(_SMALL)
    size = (root / path).stat().st_size
    if cut:
        return Damage(path, chance.randrange(size), 0)
    if path == names.INDEX_DATA and chance.random() < 0.5:  # pages differ in how much of them is used
        page = chance.randrange(size // 4096)
        return Damage(path, page * 4096 + chance.randrange(64), chance.randrange(1, 256))
    return Damage(path, chance.randrange(size), chance.randrange(1, 256))


_SMALL = (names.IDENTITY, names.STARTS)


def run_trial(damage: Damage, base: Path, root: Path, records: dict[MapFileKey, EpochRecord]) -> Outcome:
    """Copy, damage, verify, open, read, change, open again, read again. Run it in a child: it may be the end of it."""
    shutil.copytree(base, root)
    try:
        damage.do(root)
        with patch("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere)):
            return _judge(damage, root, records)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _judge(damage: Damage, root: Path, records: dict[MapFileKey, EpochRecord]) -> Outcome:
    findings = verify_directory(str(root)).findings
    damaged = [finding for finding in findings if finding.severity is Severity.DAMAGE]
    same_index = dict(open_offline(str(root)).maps) == records
    breach = _verify_breach(damage, records, findings, damaged, same_index)
    unread: set[str] = set()
    for turn in ("first", "second"):
        try:
            store = open_store(root)
        except ConfigError as error:
            return Outcome(damage, f"{turn} start refused: {error}", "")
        breach = breach or _read_all(store, unread, turn)
        if turn == "first":
            extra = make_content(file_key(shuffle_key(bytes(16), 7), 1), 300)
            write(store, extra)
            store.forget([extra.key.shuffle]).result(30)
            write(store, extra)
        store.close()
    named = {finding.path for finding in damaged}
    if not breach and not unread <= named:
        breach = f"verify did not name {sorted(unread - named)}"
    return Outcome(damage, breach, "damage" if damaged else "harmless")


def _verify_breach(
    damage: Damage,
    records: dict[MapFileKey, EpochRecord],
    findings: list[Finding],
    damaged: list[Finding],
    same_index: bool,
) -> str:
    """What verify should have said and did not."""
    if not damaged:
        if damage.path != names.INDEX_DATA or not same_index:
            return "verify saw nothing, in bytes that something refers to"
        if not any(finding.path == names.INDEX_DATA for finding in findings):
            return "verify did not name unused bytes of the index as harmless"
        return ""
    if any(finding.path != damage.path for finding in damaged):
        return f"verify blames {[finding.path for finding in damaged]}"
    if damage.path.endswith(".map") and damage.mask:
        key = layout.parse_path(damage.path).key
        assert isinstance(key, MapFileKey)
        record = records[key]
        place = _place_of(record, damage.offset)
        if place not in [(finding.region, finding.partition) for finding in damaged]:
            return f"verify does not name region and partition {place}: {damaged}"
    return ""


def _place_of(record: EpochRecord, offset: int) -> tuple[int | None, int | None]:
    """Region and partition of a byte of a data file; None for both in its footer."""
    for chunk in record.decoded():
        for entry in chunk.entries():
            begin = chunk.region_offset + entry.offset
            if begin <= offset < begin + entry.length:
                return chunk.region, entry.partition
    return None, None


def _read_all(store: Store, unread: set[str], turn: str) -> str:
    """Read every file; return a breach, and note files that were refused with an error."""
    for content in contents():
        path = layout.sealed_path(content.key)
        try:
            sealed = store.seal(content.key, content.totals).result(30)
            if sealed.totals != content.totals:
                return f"{turn} start: {content.key} answers its seal with {sealed}"
            found = read(store, [content.key], 0, content.partitions)
            if found != content.pieces(0, content.partitions):
                _parse(content, found)
                return f"{turn} start: {content.key} gives wrong rows"
        except HoldfastError as error:
            if error.status in (Status.UNKNOWN_FILE, Status.NOT_SEALED):
                return f"{turn} start: {content.key} is forgotten: {error}"
            unread.add(path)
    return ""


def _parse(content: MapContent, found: Pieces) -> None:
    """Read the batches as a reader does; raises CorruptError as it would."""
    for (_, _, partition), data in found.items():
        for _ in parse_batches(memoryview(data), partition_seed(content.key.shuffle, PartitionId(partition))):
            pass
