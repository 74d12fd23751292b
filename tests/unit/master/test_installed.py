"""A placement policy that a user has installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from holdfast.common.config.placement import PlacementSection
from holdfast.common.errors import ConfigError
from holdfast.master.fleet.fleet import policy_of
from holdfast.master.placement.groups import place
from holdfast.master.placement.members import Member, NotEnoughError
from holdfast.master.placement.policy import Candidates
from holdfast.master.placement.replace import Gone, Moving, repair, replace_all

#: Copies stand in different rooms, the part of a rack's name before the dot; never in the cellar.
ROOMS = """
class Rooms:
    def rank(self, place, others, home):
        if "cellar" in place:
            return None
        return [self.room(one) for one in others].count(self.room(place))

    def adherence(self, places):
        return "strict" if len(set(map(self.room, places))) == len(places) else "soft"

    def room(self, place):
        return place.rpartition("/")[2].partition(".")[0]

class Broken:
    def rank(self, place, others, home):
        raise RuntimeError("no idea")

    def adherence(self, places):
        return "splendid"
"""
NAMES = "[holdfast.policies]\nrooms = rooms_of_a_user:Rooms\nbroken = rooms_of_a_user:Broken\n"
#: three racks of room a, one of b, one of the cellar
MEMBERS = [Member(n, f"h{n}", f"/x/{rack}") for n, rack in enumerate(["a.1", "a.2", "a.3", "b.1", "cellar.1"])]
PLACES = {one.worker: one.place for one in MEMBERS}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PlacementSection]:
    """The module is installed as pip would have it; returns a configuration that names a policy."""
    (tmp_path / "rooms_of_a_user.py").write_text(ROOMS)
    about = tmp_path / "rooms_of_a_user-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rooms-of-a-user\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(NAMES)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name: PlacementSection(policy=name)


def test_a_policy_of_ones_own_places_replaces_and_repairs(installed: Callable[[str], PlacementSection]) -> None:
    """Two copies are in two rooms and never in the cellar, for new partitions as for those that move; three copies, of
    which two share a room, are soft."""
    policy, candidates, gone = policy_of(installed("rooms")), Candidates(MEMBERS), Gone(places=PLACES)
    found = place(policy, candidates, 20, 2, Random(1))
    assert found.adhering == (20, 0, 0)
    assert all(3 in group and 4 not in group for group in found.groups)
    assert place(policy, candidates, 5, 3, Random(1)).adhering == (0, 5, 0)
    moved = replace_all(policy, candidates, [Moving((0, 9), frozenset({9}), frozenset())], 2, Random(1), gone=gone)
    assert (moved.groups, moved.adhering.strict) == ([(0, 3)], 1)
    ((group, _),) = repair(policy, candidates, [(0, 1), (2, 3)], 2, Random(1), gone=gone).values()
    assert 3 in group


def test_what_it_raises_is_told_and_ends_nothing_else(installed: Callable[[str], PlacementSection]) -> None:
    """Its errors, and answers that mean nothing, are errors of what was to be placed."""
    policy = policy_of(installed("broken"))
    with pytest.raises(NotEnoughError, match="the placement policy broken fails: RuntimeError: no idea"):
        place(policy, Candidates(MEMBERS), 1, 2, Random(1))
    assert policy.own is not None
    with pytest.raises(NotEnoughError, match="splendid"):
        policy.own.adherence(["/x/a.1"])


def test_a_policy_that_is_not_installed_is_named(installed: Callable[[str], PlacementSection]) -> None:
    """And those that are; what is for racks and regions means nothing to it."""
    with pytest.raises(ConfigError, match=r"no placement policy 'mine' is installed .*'broken', 'rooms'"):
        policy_of(installed("mine"))
    with pytest.raises(ConfigError, match="rooms ignores it"):
        PlacementSection(policy="rooms", enforce_racks=True)
