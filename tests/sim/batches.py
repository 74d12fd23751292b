"""Batches as the oracle sees them: who wrote one, and whether it is whole."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import HEADER, whole_batch_bytes
from holdfast.worker.storage.layout import EpochKey


class Name(NamedTuple):
    """A batch, as acknowledgements name it."""

    key: EpochKey
    map: int
    attempt: int
    number: int


def name_of(key: EpochKey, batch: bytes | memoryview) -> Name:
    """Who wrote a batch of an epoch."""
    _, _, _, map_id, attempt, number, _, _ = HEADER.unpack_from(batch)
    return Name(key, map_id, attempt, number)


def names_in(key: EpochKey, data: bytes) -> list[Name] | None:
    """The batches that lie back to back in a chunk; None if one is not whole."""
    found = []
    at = 0
    while at < len(data):
        try:
            size = whole_batch_bytes(memoryview(data), at)
        except CorruptError:
            return None
        if not size or at + size > len(data):
            return None
        found.append(name_of(key, data[at : at + size]))
        at += size
    return found
