"""SealedLocations of sealed epochs: kept once, bounded, and gone with who holds them."""

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Epoch, Incarnation, PartitionId
from holdfast.common.statuses import Status
from holdfast.worker.storage.index.records import ChunkRow, EpochRecord
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.read import sealed_locations as module
from holdfast.worker.storage.read.sealed_locations import PLACE_ROWS, SealedLocations
from tests.support.reduce_data import shuffle_of


def record(chunks: int) -> EpochRecord:
    """An epoch of so many chunks."""
    rows = tuple(ChunkRow(10 * number, 10, 1, 0, 0) for number in range(chunks))
    return EpochRecord(status=Status.OK, ack=Ack.WRITTEN, incarnation=Incarnation(1), chunks=rows)


def key(partition: int) -> EpochKey:
    """An epoch of one shuffle."""
    return EpochKey(shuffle_of(), PartitionId(partition), Epoch(0))


def test_who_reads_the_same_epoch_shares_its_place() -> None:
    """It is counted once, another record is another place, and nothing is left when all let go."""
    places = SealedLocations()
    one = places.share(key(0), record(3), "a")
    assert places.share(key(0), record(3), "a") is one
    assert places.rows == PLACE_ROWS + 3
    other = places.share(key(0), record(4), "a")
    assert other is not one
    del one
    assert places.rows == PLACE_ROWS + 4
    assert places.share(key(0), record(4), "a") is other
    del other
    assert (places.rows, len(places)) == (0, 0)


def test_who_comes_while_a_file_moves_does_not_hide_who_was_there() -> None:
    """A second reader finds the file where it is by now, before readers are told: both have one place, and it hears of
    every later move."""
    places = SealedLocations()
    one = places.share(key(0), record(3), "disk")
    assert places.share(key(0), record(3), "name", away=True) is one
    assert (one.path, one.away) == ("name", True)
    places.moved(key(0), "other", None, away=False)
    assert (one.path, one.away) == ("other", False)


def test_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound a new place is BUSY, a shared one is not, and one that was let go makes room."""
    monkeypatch.setattr(module, "ROWS_MAX", 3 * (PLACE_ROWS + 3))
    places = SealedLocations()
    held = [places.share(key(number), record(3), "a") for number in range(3)]
    assert places.share(key(0), record(3), "a") is held[0]
    with pytest.raises(RetryError) as busy:
        places.share(key(3), record(3), "a")
    assert busy.value.status is Status.BUSY
    held.pop()
    places.share(key(3), record(3), "a")
