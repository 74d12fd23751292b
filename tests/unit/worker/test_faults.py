"""The fault port: what fails, from when on, and for how long."""

import errno

import pytest

from holdfast.common.limits import KIB
from holdfast.worker.server.services.faults import Faults


def failures(faults: Faults, *sizes: int) -> list[bool]:
    """Which writes of these sizes fail."""
    found = []
    for size in sizes:
        try:
            faults.strike(size)
        except OSError:
            found.append(True)
        else:
            found.append(False)
    return found


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_disk_that_broke_takes_no_small_writes_either(error: int) -> None:
    """Once a write went beyond what the disk takes, smaller ones fail as well, though they would have fitted."""
    faults = Faults(error_rate=1.0, error=error, error_after=64 * KIB)
    assert failures(faults, 50 * KIB, 20 * KIB, 1, 4 * KIB) == [False, True, True, True]


def test_a_full_disk_takes_what_still_fits() -> None:
    """A large write finds no room, a small one behind it does."""
    faults = Faults(error_rate=1.0, error=errno.ENOSPC, error_after=64 * KIB)
    assert failures(faults, 50 * KIB, 20 * KIB, 4 * KIB, 20 * KIB) == [False, True, False, True]
    assert faults.capacity_and_free(1 << 30, 1 << 29) == (64 * KIB, 10 * KIB)


def test_a_disk_is_well_again_after_its_failures() -> None:
    """`disk_error_count` failures, then none, and no disk that is full any more."""
    faults = Faults(error_rate=1.0, error_count=3)
    assert failures(faults, *[1] * 5) == [True, True, True, False, False]
    full = Faults(error_rate=1.0, error=errno.ENOSPC, error_count=1)
    assert failures(full, 1, 1) == [True, False]
    assert full.capacity_and_free(1 << 30, 1 << 29) == (1 << 30, 1 << 29)
