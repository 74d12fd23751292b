"""Where workers are, and which racks cannot be reached, as the leader works it out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Worker
from holdfast.master.fleet.fleet import Fleet, place_of, places_of, refused_by, unreachable_racks
from holdfast.master.placement.groups import Adhering
from holdfast.master.placement.topology import DEFAULT_PLACE
from holdfast.master.state_machine.codec import encode_command, join_entry
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, shuffle, worker

PLAIN = Worker(
    id=1,
    uid=b"u" * 16,
    name="w1",
    incarnation=1,
    host="h1",
    rack="",
    data_address="h1:1",
    http_address="",
    directories=(),
    boot_id="",
    version="",
    alive=True,
    changed_ms=0,
    started_index=1,
    boot_index=1,
    kept_index=1,
)


@pytest.mark.parametrize(
    ("place", "rack", "wanted"),
    [
        ("/dc/r1", "/dc/r2", "/dc/r1"),
        ("", "/dc/r2", "/dc/r2"),
        ("", "/dc/r2/", "/dc/r2"),
        ("", "r3", "/default-region/r3"),
        ("", "", DEFAULT_PLACE),
        ("", "/dc", DEFAULT_PLACE),
        ("", "/dc/hall/r1", DEFAULT_PLACE),
        ("", "/dc//", DEFAULT_PLACE),
    ],
)
def test_a_resolver_comes_before_what_a_worker_says_of_itself(place: str, rack: str, wanted: str) -> None:
    """A rack of its own may be a whole place or a name in the default region; what is neither is not known."""
    assert place_of(replace(PLAIN, place=place, rack=rack), DEFAULT_PLACE) == wanted


@pytest.mark.parametrize(
    ("rack", "wanted"), [("/dc/hall/r1", "/dc/hall/r1"), ("r3", "/dc/hall/r3"), ("/dc/r1", "/dc/hall/rack")]
)
def test_places_have_as_many_parts_as_the_default_one(rack: str, wanted: str) -> None:
    """Three of them where the default place has three; what has another depth is not known."""
    assert place_of(replace(PLAIN, rack=rack), "/dc/hall/rack") == wanted


@pytest.mark.parametrize(
    ("refused", "wanted"),
    [
        ((), False),
        (("w1",), True),
        (("h1",), True),
        (("/dc/r1",), True),
        (("/dc",), True),
        (("/d", "/dc/r", "w", "h2", "dc"), False),
    ],
)
def test_workers_hosts_racks_and_regions_are_refused_by_name(refused: tuple[str, ...], wanted: bool) -> None:
    """Whole names and whole parts of places."""
    assert refused_by(refused, PLAIN, "/dc/r1") is wanted


def test_all_workers_of_a_host_are_at_one_place() -> None:
    """The first one's; else two copies on racks that differ could be on one host."""
    workers = [
        replace(PLAIN, id=n, host=host, rack=rack) for n, host, rack in [(1, "a", "r1"), (2, "a", "r2"), (3, "b", "r2")]
    ]
    assert places_of(workers, DEFAULT_PLACE) == {
        1: "/default-region/r1",
        2: "/default-region/r1",
        3: "/default-region/r2",
    }


def test_a_rack_of_which_several_were_lost_lately_cannot_be_reached() -> None:
    """One lost worker says nothing of its rack, nor do several of long ago, nor those that nobody knows the rack of."""

    def lost(number: int, rack: str, changed_ms: int = 100_000) -> Worker:
        return replace(PLAIN, id=number, host=f"h{number}", rack=rack, alive=False, changed_ms=changed_ms)

    workers = [
        lost(1, "r1"),
        lost(2, "r1"),
        lost(3, "r2"),
        lost(4, "r3", 1),
        lost(5, "r3", 1),
        lost(6, ""),
        lost(7, ""),
    ]
    assert unreachable_racks(workers, DEFAULT_PLACE, 120_000) == {"/default-region/r1"}
    assert unreachable_racks(workers, DEFAULT_PLACE, 161_000) == frozenset()


class Growing(Node):
    """A master of which the log grows between two looks at its state: another worker registers, in Raft's thread."""

    grows = False

    def local(self, read: Any) -> Any:
        found = super().local(read)
        if self.grows:
            self.propose(join_entry(1, [encode_command(cmd.Command(worker(self.applied + 1)))]))
        return found


def test_workers_may_register_while_places_are_looked_for() -> None:
    """Whoever registers while the leader works out who takes data of a shuffle is in nobody's way."""
    node = Growing()
    leader = leader_of(node, placement={"refused": ["host2"]})

    async def run() -> None:
        leader.leadership(True, 1)
        fleet = Fleet(leader)
        await do(leader, worker(1), worker(2), application(), cmd.SetWorkersAlive(False, (cmd.WorkerRef(1, 1),)))
        node.grows = True
        candidates = fleet.candidates(shuffle())
        assert len(candidates)
        fleet.chosen("registered", shuffle(), candidates, Adhering(strict=1))
        assert fleet.places_with(frozenset()) == {DEFAULT_PLACE}
        assert fleet.places_with(frozenset({"fast"})) == frozenset()
        assert fleet.no_room(frozenset())
        leader.leadership(False, 1)

    asyncio.run(run())
