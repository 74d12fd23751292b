"""Bytes on the disk: golden files, round trips, and every flipped byte of a footer."""

import os
from pathlib import Path

import pytest

from holdfast.common.errors import CorruptError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Incarnation
from holdfast.common.statuses import Status
from holdfast.worker.storage import layout
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index.index import VALUE_BYTES_MAX, file_items, protect
from holdfast.worker.storage.index.records import decode_footer
from tests.unit.worker.storage import samples

GOLDEN = Path(__file__).parents[3] / "golden"


@pytest.mark.parametrize("name", sorted(samples.golden()))
def test_golden_bytes(name):
    """No disk format changes by accident: what we write today is what directories out there hold."""
    path = GOLDEN / f"{name}.hex"
    got = samples.golden()[name].hex()
    if os.environ.get("HOLDFAST_REWRITE_GOLDEN"):
        path.write_text(got + "\n")
    assert got == path.read_text().strip(), f"{path.name} differs; if meant, write it anew and add an ADR"


def test_small_files_come_back():
    """Identity and starts survive the trip."""
    assert Identity.decode(samples.IDENTITY.encode()) == samples.IDENTITY
    assert Starts.decode(samples.STARTS.encode()) == samples.STARTS


@pytest.mark.parametrize("partitions", [0, 1, 64, 65, 10_000])
def test_footer_comes_back(partitions):
    """A record is the same after a trip through its footer, and its region records tile the file."""
    record, footer = samples.map_file(partitions)
    assert decode_footer(footer, samples.KEY, record.file_bytes) == record
    assert record.file_bytes == record.epoch.size_bytes + len(footer)


@pytest.mark.parametrize("partitions", [0, 1, 64, 10_000])
def test_index_values_stay_in_their_page(partitions):
    """No value is long enough to get LMDB pages of its own, however many partitions a file has."""
    for key, value in file_items(samples.map_file(partitions)[0]):
        assert len(protect(key, value)) <= VALUE_BYTES_MAX
        assert len(key) + VALUE_BYTES_MAX + 8 <= 2_038  # half a page of 4 KiB less its header


@pytest.mark.parametrize("encoded", [samples.IDENTITY.encode(), samples.STARTS.encode()])
def test_any_flip_in_a_small_file_is_seen(encoded):
    """A flipped byte in identity or starts is a CorruptError, never another value."""
    decode = Identity.decode if encoded == samples.IDENTITY.encode() else Starts.decode
    for at in range(len(encoded)):
        with pytest.raises(CorruptError):
            decode(encoded[:at] + bytes([encoded[at] ^ 0x40]) + encoded[at + 1 :])


def test_any_flip_in_a_footer_is_seen():
    """A flipped byte anywhere in a footer is a CorruptError, and so is any cut."""
    record, footer = samples.map_file(3)
    size = record.file_bytes
    for at in range(len(footer)):
        damaged = footer[:at] + bytes([footer[at] ^ 0x01]) + footer[at + 1 :]
        with pytest.raises(CorruptError):
            decode_footer(damaged, samples.KEY, size)
        with pytest.raises(CorruptError):
            decode_footer(footer[:at], samples.KEY, size)


def test_names_come_back():
    """Paths of sealed, open and failed files are parsed into what they were made from."""
    key = samples.KEY
    note = layout.OpenNote(Incarnation(9), Ack.SYNCED)
    assert layout.parse_path(layout.sealed_path(key)) == layout.FileName(key, layout.FileKind.SEALED)
    assert layout.parse_path(layout.mark_path(key, Status.FAILED_COPY)) == layout.FileName(key, layout.FileKind.FAILED)
    assert layout.parse_path(layout.open_path(key, note)) == layout.FileName(key, layout.FileKind.OPEN, note)


@pytest.mark.parametrize(
    "name",
    ["m-01-2-3.map", "m-1-2.map", "m-4294967296-2-3.map", "m-1-2-3.map.bak", "m-1-2-3.1.fast.open", "x", "m-١-2-3.map"],
)
def test_other_names_are_not_ours(name):
    """A name that we would not write is nobody's, so it is never taken for data or deleted."""
    with pytest.raises(CorruptError):
        layout.parse_path(f"{layout.shuffle_folder(samples.KEY.shuffle)}/{name}")
