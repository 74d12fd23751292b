"""How many workers a host has, and whose each directory is: the filters of the role holdfast_worker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ansible.render import role_filters

FILTERS = role_filters("holdfast_worker")


def disks(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"path": f"/data{number}", "tier": "SSD", **more} for number in range(1, count + 1)]


def plan(
    directories: list[dict[str, Any]], asked: int = 0, cores: int = 8, before: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    made: dict[str, Any] = FILTERS["holdfast_workers_plan"](
        directories, more.pop("name", "w7"), before or {}, asked, cores, **more
    )
    return made


def paths(made: dict[str, Any]) -> list[list[str]]:
    return [[each["path"] for each in worker["directories"]] for worker in made["workers"]]


def names(made: dict[str, Any]) -> list[str]:
    return [worker["name"] for worker in made["workers"]]


@pytest.mark.parametrize(
    ("cores", "count", "number"), [(2, 4, 1), (4, 4, 1), (8, 1, 1), (8, 4, 2), (15, 12, 3), (32, 12, 8), (64, 12, 12)]
)
def test_cores_and_disks_decide_how_many(cores: int, count: int, number: int) -> None:
    """One worker for each four cores, no more than disks, at least one; what is in memory is no disk."""
    memory = {"path": "/dev/shm/holdfast", "tier": "MEMORY"}
    made = plan([memory, *disks(count)], cores=cores)
    assert len(made["workers"]) == number
    assert names(made) == ["w7", *(f"w7-{each}" for each in range(2, number + 1))]
    assert not made["changed"]
    assert made["moved"] == []


def test_directories_are_divided_in_turn() -> None:
    """Disks for themselves, memory for itself; a directory that names its worker goes there, and the others fill up."""
    memory = [{"path": f"/dev/shm/{number}", "tier": "MEMORY"} for number in (1, 2)]
    assert paths(plan([*memory, *disks(5)], 2)) == [
        ["/dev/shm/1", "/data1", "/data3", "/data5"],
        ["/dev/shm/2", "/data2", "/data4"],
    ]
    named = disks(4)
    named[0]["worker"] = 2
    made = plan(named, 2)
    assert paths(made) == [["/data2", "/data3"], ["/data1", "/data4"]]
    assert not any("worker" in each for worker in made["workers"] for each in worker["directories"])


def test_a_directory_stays_with_its_worker() -> None:
    """A disk that is put in or taken out moves no other one; so is a number of workers that nobody asked for, whatever
    cores there are by now."""
    before = plan(disks(4), 2)
    made = plan(disks(6)[1:], before=before, cores=64)  # /data1 is taken out, two are put in
    assert paths(made) == [["/data3", "/data5", "/data6"], ["/data2", "/data4"]]
    assert (made["changed"], made["moved"], names(made)) == (False, [], ["w7", "w7-2"])


def test_more_workers_take_some_from_each() -> None:
    """As few directories as possible move, each worker of before keeps its name with one of its directories at least,
    and new ones have new names."""
    before = plan(disks(6), 3)
    made = plan(disks(6), 4, before=before)
    assert paths(made) == [["/data1", "/data4"], ["/data2", "/data5"], ["/data3"], ["/data6"]]
    assert (made["changed"], made["moved"]) == (True, ["/data6"])
    assert names(made) == ["w7", "w7-2", "w7-3", "w7-4"]


def test_no_name_comes_twice() -> None:
    """A worker that is no more leaves its name behind, since masters keep it for its directories."""
    made = plan(disks(4), 2)
    for number, wanted in ((1, ["w7"]), (2, ["w7", "w7-3"]), (1, ["w7"]), (3, ["w7", "w7-4", "w7-5"])):
        made = plan(disks(4), number, before=made)
        assert names(made) == wanted
    assert names(plan(disks(4), before=made, name="other")) == ["other", "other-2", "other-3"]
    assert names(plan([{"path": "/new"}], 1, before=plan(disks(1)))) == ["w7-2"], "none of its directories is left"


def test_disks_are_shared_only_where_it_is_said() -> None:
    """More workers than disks are refused; shared, each has a directory of its own below, and its part of the room."""
    with pytest.raises(ValueError, match="worker 3 of 3 would have no directory on a disk"):
        plan(disks(2), 3)
    made = plan(disks(2, capacity="900GiB"), 3, share=True)
    assert paths(made) == [["/data1/worker-1"], ["/data2"], ["/data1/worker-3"]]
    assert [each["capacity"] for worker in made["workers"] for each in worker["directories"]] == [
        f"{450 << 30}B",
        "900GiB",
        f"{450 << 30}B",
    ]
    with pytest.raises(ValueError, match="is for worker 3, and the host has 2"):
        plan(disks(2, worker=3), 2)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_every_change_keeps_what_it_can(count: int, first: int, second: int) -> None:
    """Whatever the numbers: each directory has one worker, shares differ by one at most after a change, what moved is
    told, and what did not move has the worker and the name of before."""
    before = plan(disks(count), min(first, count))
    made = plan(disks(count), min(second, count), before=before)
    assert sorted(path for each in paths(made) for path in each) == sorted(f"/data{n}" for n in range(1, count + 1))
    sizes = [len(each) for each in paths(made)]
    assert max(sizes) - min(sizes) <= 1
    assert len(set(names(made))) == len(sizes)
    old = {path: name for name, each in zip(names(before), paths(before), strict=True) for path in each}
    new = {path: name for name, each in zip(names(made), paths(made), strict=True) for path in each}
    assert {path for path in old if old[path] != new[path]} == set(made["moved"])
    assert made["changed"] == (len(made["workers"]) != len(before["workers"]))


@pytest.mark.parametrize(
    ("size", "parts", "share"),
    [("4G", 1, "4G"), ("", 3, ""), ("4G", 2, f"{2 << 30}"), ("1GiB", 4, f"{1 << 28}B"), ("1000", 3, "333")],
)
def test_memory_is_divided(size: str, parts: int, share: str) -> None:
    """A size in the words of systemd stays one, and so does one in those of Holdfast."""
    assert FILTERS["holdfast_size_share"](size, parts) == share


def test_a_size_that_is_none_is_refused() -> None:
    """Such as a share of the memory of the host, which nobody here knows."""
    with pytest.raises(ValueError, match="50% is no size"):
        FILTERS["holdfast_size_share"]("50%", 2)


def listed(*workers: tuple[str, str]) -> list[dict[str, Any]]:
    """As `holdfast workers --json` lists name and state; numbers from 11."""
    return [{"worker": number, "name": name, "state": state} for number, (name, state) in enumerate(workers, 11)]


@pytest.mark.parametrize(
    ("purpose", "drained"),
    [("restart", ["12"]), ("removal", ["12", "13"])],
)
def test_a_stopped_worker_is_left_out_only_where_nobody_needs_it(purpose: str, drained: list[str]) -> None:
    """A worker that somebody stopped keeps its data, and is lost: before a removal it is drained, which is refused
    while it does not run. Nobody needs one that is gone. Numbers say who is meant, since w7 may be the host."""
    workers = listed(("w7", "gone"), ("w7-2", "alive"), ("w7-3", "lost"), ("w8", "alive"))
    assert FILTERS["holdfast_workers_to_drain"](["w7", "w7-2", "w7-3", "w7-4"], workers, purpose) == drained
