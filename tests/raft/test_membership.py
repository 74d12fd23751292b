"""A change of the masters by restarts with other settings: one by one, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from holdfast.common.system.ports import free_ports
from holdfast.master.raft.errors import SettingsRefused
from holdfast.master.raft.membership import MEMBERS, Membership, refusal
from tests.raft.test_node import CALM, Node, Nodes, leader_of
from tests.support.waiting import wait_until

ONE, TWO, THREE, FOUR, FIVE = (frozenset(f"m{number}" for number in range(1, last + 1)) for last in range(1, 6))
NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nodes that are stopped at the end."""
    made = Nodes(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("agreed", [ONE, TWO, THREE, FOUR, FIVE])
def test_what_is_taken_leaves_every_two_majorities_a_master(agreed: frozenset[str]) -> None:
    """Whichever list of up to five out of six masters is taken after `agreed`: a majority of the one and a majority of
    the other always share a master; and each list with one more or one less is taken."""
    everybody = sorted(FIVE | {"m6"})
    for size in range(1, 6):
        for now in map(frozenset, combinations(everybody, size)):
            taken = not refusal(agreed, NOBODY, now)
            assert taken == (len(agreed ^ now) < 2), (agreed, now)
            if taken:
                assert all(
                    set(one) & set(other)
                    for one in combinations(agreed, len(agreed) // 2 + 1)
                    for other in combinations(now, len(now) // 2 + 1)
                )


@pytest.mark.parametrize(
    ("agreed", "following", "now", "says"),
    [
        (NOBODY, NOBODY, FIVE, ""),
        (NOBODY, THREE, THREE, ""),
        (NOBODY, THREE, FOUR, "has not met all of them"),
        (THREE, NOBODY, FIVE, "one master at a time"),
        (THREE, NOBODY, TWO | {"m6"}, "agreed last on m1, m2, m3. Two leaders"),
        (THREE, FOUR, FOUR, ""),
        (THREE, FOUR, THREE, ""),
        (THREE, FOUR, FIVE, "a change to m1, m2, m3, m4 is under way"),
        (FOUR, FIVE, THREE, "under way"),
    ],
)
def test_one_change_after_the_other(
    agreed: frozenset[str], following: frozenset[str], now: frozenset[str], says: str
) -> None:
    """A change that was begun goes on or is taken back; another one has to wait for it. Who is new takes what it began
    with."""
    found = refusal(agreed, following, now)
    assert (found == "") == (says == "")
    assert says in found


def test_what_was_agreed_is_remembered(tmp_path: Path) -> None:
    """In the directory: over restarts, until all agree on the next list; a damaged file is refused."""
    assert not Membership(tmp_path, THREE).settled
    with pytest.raises(SettingsRefused):
        Membership(tmp_path, FOUR)
    Membership(tmp_path, THREE).agree()
    assert Membership(tmp_path, THREE).settled
    assert not Membership(tmp_path, FOUR).settled
    with pytest.raises(SettingsRefused):
        Membership(tmp_path, FIVE)
    Membership(tmp_path, FOUR).agree()
    assert not Membership(tmp_path, FIVE).settled
    (tmp_path / MEMBERS).write_text("{}")
    with pytest.raises(SettingsRefused, match="damaged"):
        Membership(tmp_path, FIVE)


def test_three_masters_become_five_by_restarts_with_settings(nodes: Nodes) -> None:
    """One more at a time: each master is restarted with the next list while the others work, and all that was
    acknowledged is on the new ones. A jump is refused."""
    ports = {f"m{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(5), 1)}

    def named(names: frozenset[str]) -> dict[str, str]:
        return {name: ports[name] for name in sorted(names)}

    def agreed(name: str, members: frozenset[str]) -> bool:
        return json.loads((nodes.directory / name / MEMBERS).read_text())["agreed"] == sorted(members)

    def has_all(node: Node) -> bool:
        return node.local(lambda machine: len(machine.applied)) == len(done)

    nodes.peers = named(THREE)
    running: dict[str, Node] = {name: nodes.start(name, **CALM) for name in sorted(THREE)}
    done = [leader_of(list(running.values())).propose(b"before").result(60).result]
    for before, now in ((THREE, FOUR), (FOUR, FIVE)):
        for name in sorted(before):
            wait_until(partial(agreed, name, before), f"{name} to agree on {len(before)}")
        nodes.peers = named(now)
        (new,) = now - before
        running[new] = nodes.start(new, **CALM)
        for name in sorted(before):
            running[name].stop()
            nodes.running.remove(running[name])
            if now == FOUR:
                with pytest.raises(SettingsRefused, match="one master at a time"):
                    nodes.start(name, peers=named(FIVE), **CALM)
            running[name] = nodes.start(name, **CALM)
            done.append(leader_of(list(running.values())).propose(name.encode()).result(60).result)
    assert done == list(range(1, len(done) + 1)), "nothing that was acknowledged is missing"
    for name, node in running.items():
        wait_until(partial(has_all, node), f"{name} to have all")
        wait_until(partial(agreed, name, FIVE), f"{name} to agree")
