"""Pools on real servers: what an application or a user is confined to holds wherever places are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.client import ConfigError, NoRoomError, Session
from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from holdfast.tools.cli.main import holdfast
from tests.cluster.test_drain import drain, listed
from tests.cluster.test_placement import explained
from tests.support.waiting import wait_until

SETTINGS: Sections = {
    "lease": {"heartbeat": "200ms", "worker": "2s"},
    "placement": {"users": [{"user": "nightly", "tags": ["etl"]}]},
}
OWN: dict[str, Sections] = {
    "w1": {"worker": {"tags": ["ssd"]}},
    "w2": {"worker": {"tags": ["ssd"]}},
    "w3": {"worker": {"tags": ["ssd", "etl"]}},
}


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters; w1 and w2 are ssd, w3 is ssd and etl, w4 is neither."""
    with local_cluster(3, 4, dir=tmp_path / "cluster", settings=SETTINGS, own=OWN) as started:
        yield started


def used(cluster: LocalCluster, session: Session) -> set[str]:
    """The workers of the session's first shuffle now."""
    return {one["name"] for each in explained(cluster, session)["partitions"] for one in each["workers"]}


def test_a_pool_holds_for_new_places_and_for_all_that_move(pools: LocalCluster) -> None:
    """Both kinds of shuffles of an application go to its workers alone; so does what a lost worker had, what a drain
    hands on, and what is revived when nobody of the pool is left but one, also by the next leader. What was pushed is
    read."""
    with Session(pools.endpoints, app="fast", tags=["ssd"]) as session:
        shuffle = session.register_reduce_shuffle(40, 1, replication=2)
        ring = session.register_map_shuffle(4, 2)
        by_number = {each.worker: name for name, each in listed(pools).items()}
        assert ring.assignment is not None
        assert {by_number[each] for each in ring.assignment.workers} == {"w1", "w2", "w3"}
        assert used(pools, session) == {"w1", "w2", "w3"}
        with shuffle.writer(0) as writer:
            for number in range(40):
                writer.write(number, b"before")
            writer.flush()
            pools.workers[0].kill()
            wait_until(lambda: used(pools, session) == {"w2", "w3"}, "the moves")
            pools.leader().kill()
            pools.leader()
            drain(pools, "w2")
            wait_until(lambda: used(pools, session) == {"w3"}, "the drain")
            for number in range(40):
                writer.write(number, b"after")
            shuffle.commit([writer.close()])
        read = sorted(bytes(each.payload) for each in shuffle.reader(range(40)))
        assert read == [b"after"] * 40 + [b"before"] * 40


def test_the_masters_settings_confine_a_user(pools: LocalCluster) -> None:
    """A user's shuffles go to workers that have the tags of the settings besides those of the application; others'
    go anywhere. What keeps a worker out is told, and the tags are."""
    with Session(pools.endpoints, app="mine") as session:
        session.register_reduce_shuffle(40, 1)
        assert used(pools, session) == {"w1", "w2", "w3", "w4"}
    with Session(pools.endpoints, app="night", user="nightly", tags=["ssd"]) as session:
        session.register_reduce_shuffle(40, 1, replication=2)
        found = explained(pools, session)
        assert (used(pools, session), found["tags"]) == ({"w3"}, ["etl", "ssd"])
        assert {one["name"]: one["why"] for one in found["decisions"][0]["left_out"]} == {
            "w1": "without the tag etl",
            "w2": "without the tag etl",
            "w4": "without the tags etl and ssd",
        }
        # One worker is the whole pool, and its only open data would have nowhere to go.
        with pytest.raises(NoRoomError, match=r"no other worker would take data of w3 \(the tags etl and ssd\)"):
            drain(pools, "w3")
    assert {name: list(each.tags) for name, each in listed(pools).items()} == {
        "w1": ["ssd"],
        "w2": ["ssd"],
        "w3": ["ssd", "etl"],
        "w4": [],
    }
    shown = CliRunner().invoke(holdfast, ["workers", "--masters", pools.endpoints], standalone_mode=False)
    assert "ssd, etl" in shown.output


def test_a_pool_without_workers_is_an_error_that_names_the_tag(pools: LocalCluster) -> None:
    """Nothing is placed elsewhere: the error says which tag no living worker has, for new shuffles and for writers."""
    with Session(pools.endpoints, app="lost", tags=["gpu"], no_room_grace=0.5) as session:
        with pytest.raises(NoRoomError, match="no worker that is alive has the tag gpu"):
            session.register_reduce_shuffle(4, 1)
        with pytest.raises(NoRoomError, match="no worker that is alive has the tag gpu"):
            session.register_map_shuffle(4, 1)
    with Session(pools.endpoints, app="writes", tags=["etl"], no_room_grace=0.5) as session:
        shuffle = session.register_reduce_shuffle(4, 1)
        with shuffle.writer(0) as writer:
            pools.workers[2].kill()
            wait_until(lambda: listed(pools)["w3"].state == "lost", "the loss")
            writer.write(0, b"x")
            with pytest.raises(NoRoomError, match="no worker that is alive has the tag etl"):
                writer.close()


def test_tags_are_checked_where_they_are_given(pools: LocalCluster) -> None:
    """What is no tag, one text for a list, and tags of an application that has its own, are refused at the call."""
    for wrong in (["a,b"], [""], ["-a"], "ssd", [str(number) for number in range(17)]):
        with pytest.raises(ConfigError, match="tag"):
            Session(pools.endpoints, app="wrong", tags=wrong)
    with Session(pools.endpoints, app="first", tags=["ssd"]), pytest.raises(ConfigError, match="new application"):
        Session(pools.endpoints, app="first", attach=True, tags=["etl"])
