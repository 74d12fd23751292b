"""How much a directory has room for, and which limit it names when there is none."""

import pytest

from holdfast.common.limits import MIB
from holdfast.worker.core.write.space import Space

CAPACITY = ", the capacity in worker.directories"
BASE = {"limit": 0, "size": 1_000, "free": 1_000, "used": 0, "pending": 0, "reserve": 0, "share": 0.1}


def space(**changed: int) -> Space:
    """A directory on a file system of 1,000 MiB; every number but the share is in MiB."""
    fields = {**BASE, **changed}
    return Space(**{name: value if name == "share" else value * MIB for name, value in fields.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "room", "reported"),
    [
        ({}, 1_000, ""),
        ({"limit": 512, "used": 500}, 12, ""),
        ({"limit": 512, "used": 512}, 0, f"512.0 MiB used of 512.0 MiB{CAPACITY}"),
        ({"used": 1_000, "free": 0}, 0, "1000.0 MiB used of 1000.0 MiB"),
        ({"used": 300, "free": 0}, 0, "0 B free of 1000.0 MiB on its file system"),
        ({"limit": 400, "used": 300, "free": 50, "reserve": 60}, 10, ""),
        (
            {"limit": 512, "used": 480, "reserve": 5_000},
            0,
            f"480.0 MiB used of 512.0 MiB{CAPACITY}, and 51.2 MiB are to stay free (worker.disk_reserve)",
        ),
        (
            {"used": 300, "free": 20, "reserve": 30},
            0,
            "20.0 MiB free of 1000.0 MiB on its file system, and 30.0 MiB are to stay free (worker.disk_reserve)",
        ),
        (
            {"limit": 100, "used": 70, "pending": 30},
            0,
            f"70.0 MiB used of 100.0 MiB{CAPACITY}, 30.0 MiB more to be written out of the push log",
        ),
        ({"limit": 5_000, "used": 1_000, "free": 0}, 0, "1000.0 MiB used of 1000.0 MiB"),
    ],
)
def test_the_limit_that_was_met_is_named(changed: dict[str, int], room: int, reported: str) -> None:
    """Room is what the capacity and the file system leave beyond the log and the reserve; the tighter one is named."""
    found = space(**changed)
    assert found.room_bytes == room * MIB
    assert found.full(1 * MIB) == reported


def test_little_room_is_reported_as_none() -> None:
    """What is not worth a new epoch is told as full, though what is open there may use it."""
    found = Space(100 * MIB, 1000 * MIB, 900 * MIB, 100 * MIB - 5, 0, 0, 0.0)
    assert found.room_bytes == 5
    assert found.full(MIB).startswith("100.0 MiB used of 100.0 MiB")
    assert found.full(5) == ""
