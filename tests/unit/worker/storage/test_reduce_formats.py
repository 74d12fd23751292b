"""Bytes of REDUCE partitions on disk: every flip is seen, lengths stay in their page, names come back."""

import pytest

from holdfast.common.errors import CorruptError
from holdfast.common.ids import Incarnation
from holdfast.worker.storage import layout
from holdfast.worker.storage.index.index import VALUE_BYTES_MAX, epoch_items, protect
from holdfast.worker.storage.index.records import (
    decode_epoch,
    decode_file_head,
    decode_footer,
    decode_key,
    encode_key,
)
from holdfast.worker.storage.layout import (
    PackKey,
    open_path,
    parse_file,
    parse_path,
    parse_segment,
    sealed_path,
    segment_path,
)
from holdfast.worker.storage.log.log_records import (
    SEGMENT_HEAD_BYTES,
    SegmentNote,
    decode_record_head,
    decode_segment_head,
    decode_segment_note,
)
from tests.unit.worker.storage import samples

PACK = PackKey(samples.KEY.shuffle, Incarnation(7), 3)


def test_any_flip_of_a_head_is_seen():
    """A flipped byte in the head of a partition file, a segment or a record is never another value."""
    golden = samples.reduce_golden()
    record = golden["storage_log_record"] + bytes(400)
    assert decode_record_head(record, 0, 11) is not None
    assert decode_record_head(record, 0, 12) is None
    for at in range(len(golden["storage_log_record"])):
        assert decode_record_head(record[:at] + bytes([record[at] ^ 4]) + record[at + 1 :], 0, 11) is None
    segment = golden["storage_segment_head"]
    for at in range(len(segment)):
        assert decode_segment_note(segment[:at] + bytes([segment[at] ^ 4]) + segment[at + 1 :]) is None
    assert decode_segment_note(segment) == SegmentNote(0x01020304, 9, True, 0x0102_0300)
    generations = [(golden["storage_file_head"], decode_file_head), (segment[:SEGMENT_HEAD_BYTES], decode_segment_head)]
    for data, decode in generations:
        decode(data)
        for at in range(len(data)):
            with pytest.raises(CorruptError):
                decode(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


def test_any_flip_of_a_footer_is_seen():
    """A footer comes back as it was written, and no byte of it can change unseen."""
    record, footer = samples.pack_file(3)
    size = record.file_bytes
    assert size == 3_000 + len(footer)
    assert decode_footer(footer, PACK, size) == record
    for at in range(len(footer)):
        with pytest.raises(CorruptError):
            decode_footer(footer[:at] + bytes([footer[at] ^ 1]) + footer[at + 1 :], PACK, size)
    with pytest.raises(CorruptError):
        decode_footer(footer, PackKey(PACK.shuffle, PACK.incarnation, 4), size)


@pytest.mark.parametrize("chunks", [0, 1, 72, 73, 1_000])
def test_index_values_of_epochs_stay_in_their_page(chunks):
    """However many chunks an epoch has, no value gets LMDB pages of its own."""
    items = list(epoch_items(samples.EPOCH, samples.epoch(chunks)))
    assert all(len(protect(key, value)) <= VALUE_BYTES_MAX for key, value in items)
    rows = b"".join(value for _, value in items[1:])
    assert decode_epoch(items[0][1], rows) == samples.epoch(chunks)


def test_keys_and_names_come_back():
    """Keys and paths of every kind are read back as what they were; others are not taken for ours."""
    for key in (samples.EPOCH, PACK, samples.KEY):
        assert decode_key(encode_key(key)) == key
        found = parse_path(sealed_path(key))
        assert (found.key, found.kind) == (key, layout.FileKind.SEALED)
    assert parse_path(open_path(samples.EPOCH)) == layout.FileName(samples.EPOCH, layout.FileKind.OPEN)
    for kind, status in layout.MARKS.items():
        assert parse_path(layout.mark_path(samples.EPOCH, status)) == layout.FileName(samples.EPOCH, kind)
    assert parse_segment(segment_path(7, 3).rpartition("/")[2]) == (7, 3)
    for name in ("p-1.part", "p-01-1.part", "k-1-1.part", "p-1-99999999999.part", "p-1-1.pack", "m-1-1.map"):
        assert parse_file(samples.KEY.shuffle, name) is None
