"""Placement on real servers: racks from a table, who takes over from whom, reloads, and what is told of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.client import NoRoomError, Session
from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from holdfast.common.errors import HoldfastError
from holdfast.common.log_events import LogEvent
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.main import holdfast
from tests.cluster.reduce_peers import metric
from tests.support.logged import lines_of
from tests.support.waiting import wait_until

#: h1 and h2 on one rack, h3 and h4 on another
TABLE = "h1 /dc/r1\nh2 /dc/r1\nh3 /dc/r2\nh4 /dc/r2\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The table of racks."""
    path = tmp_path / "racks"
    path.write_text(TABLE)
    return path


@pytest.fixture
def racks(tmp_path: Path, table: Path) -> Iterator[LocalCluster]:
    """Three masters and four workers on two racks."""
    settings = {
        "lease": {"heartbeat": "200ms", "worker": "2s"},
        "placement": {"resolver": "table", "resolver_path": str(table), "refresh": "200ms"},
    }
    with local_cluster(3, 4, dir=tmp_path / "cluster", settings=settings) as started:
        yield started


def explained(cluster: LocalCluster, session: Session) -> dict[str, Any]:
    """What `holdfast placement APP/SHUFFLE` tells of the first shuffle."""
    words = ["placement", f"{session.instance.hex()}/0", "--masters", cluster.endpoints, "--json"]
    done = CliRunner().invoke(holdfast, words, standalone_mode=False)
    assert done.exception is None, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def names(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Primary and replica of each partition."""
    return [(one["name"], two["name"]) for one, two in (each["workers"] for each in found["partitions"])]


def places(cluster: LocalCluster) -> dict[str, str]:
    """Where every worker is, as the masters list it."""

    async def ask() -> pb.ListWorkersReply:
        async with ControlClient(cluster.endpoints) as client:
            reply: pb.ListWorkersReply = await client.call("Admin/ListWorkers", pb.ListWorkersRequest())
            return reply

    return {each.name: each.place for each in asyncio.run(ask()).workers}


def test_copies_are_on_two_racks_and_a_lost_worker_is_replaced_on_its_own(racks: LocalCluster) -> None:
    """Every partition is on both racks; when a worker is killed each partition keeps its other copy, what the worker
    had goes to the other one of its rack, and a leader that comes new says the same."""
    with Session(racks.endpoints, app="racks") as session:
        shuffle = session.register_reduce_shuffle(40, 1, replication=2)
        found = explained(racks, session)
        before = names(found)
        on = {"w1": 1, "w2": 1, "w3": 2, "w4": 2}
        assert all(on[one] != on[two] for one, two in before)
        assert found["not_adhering"] == 0
        assert [each["what"] for each in found["decisions"]] == ["registered"]
        assert metric(racks, "holdfast_master_placement_not_adhering") == 0
        assert metric(racks, "holdfast_master_workers_on_default_rack") == 0
        racks.workers[0].kill()
        wanted = [tuple("w2" if name == "w1" else name for name in pair) for pair in before]
        wait_until(lambda: names(explained(racks, session)) == wanted, "the moves")
        assert [each["what"] for each in explained(racks, session)["decisions"]] == ["registered", "moved"]
        racks.leader().kill()
        assert wait_until(lambda: names(explained(racks, session)), "the next leader") == wanted
        shuffle.unregister()


def test_a_reload_moves_workers_to_other_racks_and_one_that_fails_changes_nothing(
    racks: LocalCluster, table: Path
) -> None:
    """The table is read again by all masters: what is placed from then on keeps to it, what was placed is told."""
    words = ["reload", "--masters", racks.endpoints, "--json"]
    wait_until(lambda: places(racks)["w2"] == "/dc/r1", "the places")
    with Session(racks.endpoints, app="moved") as session:
        session.register_reduce_shuffle(40, 1, replication=2)
        table.write_text(TABLE.replace("h2 /dc/r1", "h2 /dc/r2").replace("h3 /dc/r2", "h3 /dc/r1"))
        done = CliRunner().invoke(holdfast, words, standalone_mode=False)
        assert [each["problem"] for each in json.loads(done.stdout)["masters"]] == [""] * 3
        wait_until(lambda: (places(racks)["w2"], places(racks)["w3"]) == ("/dc/r2", "/dc/r1"), "the new places")
        # What was placed before stays where it is; that it is not as wished any more is told.
        bad = {frozenset(pair) for pair in (("w1", "w3"), ("w2", "w4"))}
        found = explained(racks, session)
        assert found["not_adhering"] == sum(frozenset(pair) in bad for pair in names(found)) > 0
        table.write_text("h1 nonsense\n")
        done = CliRunner().invoke(holdfast, words, standalone_mode=False)
        assert all("no place" in each["problem"] for each in json.loads(done.stdout)["masters"])
        assert places(racks)["w2"] == "/dc/r2"


def test_status_tells_how_open_partitions_stand(tmp_path: Path, table: Path) -> None:
    """As `placement` does of one shuffle, `status` and the metrics count over all that are open: strict where
    all is as wished, soft where racks are not, failed where copies are missing. A reload counts anew, a commit ends
    it."""
    settings: Sections = {
        "placement": {"policy": "regionaware", "resolver": "table", "resolver_path": str(table), "refresh": "200ms"}
    }
    with (
        local_cluster(1, 4, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="stands") as session,
    ):

        def status() -> dict[str, Any]:
            words = ["status", "--masters", cluster.endpoints, "--json"]
            found: dict[str, Any] = json.loads(CliRunner().invoke(holdfast, words, standalone_mode=False).stdout)
            return found

        def reported(strict: int, soft: int, failed: int) -> None:
            wanted = {"strict": strict, "soft": soft, "failed": failed}
            wait_until(lambda: status()["adhering"] == wanted, f"{wanted} to be told")

        wait_until(lambda: set(places(cluster).values()) == {"/dc/r1", "/dc/r2"}, "the places")
        shuffle = session.register_reduce_shuffle(40, 1, replication=2)
        reported(40, 0, 0)
        assert not status()["warnings"]
        session.register_reduce_shuffle(6, 1, replication=5)
        reported(40, 0, 6)
        table.write_text(TABLE.replace("h2 /dc/r1", "h2 /dc/r2").replace("h3 /dc/r2", "h3 /dc/r1"))
        CliRunner().invoke(holdfast, ["reload", "--masters", cluster.endpoints], standalone_mode=False)
        wait_until(lambda: explained(cluster, session)["soft"], "the new places")
        soft = explained(cluster, session)["soft"]
        reported(40 - soft, soft, 6)
        assert metric(cluster, 'holdfast_master_open_partitions{adherence="soft"}') == soft
        short, warning = status()["warnings"]
        assert short.startswith("6 epochs of open shuffles have fewer copies than asked for;"), "5 of 4 workers"
        assert warning.startswith(f"6 of 46 open partitions not as placement wishes, and {soft} only softly; see")
        with shuffle.writer(0) as writer:
            shuffle.commit([writer.close()])
        reported(0, 0, 6)


def test_open_epochs_that_lost_a_copy_are_told_until_it_is_back(tmp_path: Path) -> None:
    """Before any commit: status, metric and an event count the epochs of which a copy is on a lost worker."""
    settings = {"lease": {"heartbeat": "200ms", "worker": "1s"}, "placement": {"stabilise": "1h"}}
    with (
        local_cluster(1, 3, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="short") as session,
    ):
        session.register_reduce_shuffle(12, 1, replication=2)
        on_first = sum("w1" in pair for pair in names(explained(cluster, session)))
        cluster.workers[0].kill()
        wait_until(lambda: metric(cluster, "holdfast_master_open_epochs_short") == on_first > 0, "the epochs")
        words = ["status", "--masters", cluster.endpoints, "--json"]
        told = json.loads(CliRunner().invoke(holdfast, words, standalone_mode=False).stdout)
        assert told["open_epochs_short"] == on_first
        assert any(f"{on_first} epochs of open shuffles have fewer copies" in each for each in told["warnings"])
        assert len(lines_of(cluster.leader().log, LogEvent.SHUFFLE_OPEN_SHORT)) == 1
        cluster.workers[0].start()
        wait_until(lambda: metric(cluster, "holdfast_master_open_epochs_short") == 0, "the worker to be back")


def test_durability_over_regions_wants_all_copies_to_acknowledge(tmp_path: Path, table: Path) -> None:
    """A shuffle of which fewer copies acknowledge is refused with what to do, and is placed with all of them."""
    table.write_text("h1 /a/r1\nh2 /a/r2\nh3 /b/r3\n")
    regions = {"policy": "regionaware", "durable_regions": 2, "resolver": "table", "resolver_path": str(table)}
    with (
        local_cluster(
            1, 3, dir=tmp_path / "cluster", settings={"placement": {**regions, "refresh": "200ms"}}
        ) as cluster,
        Session(cluster.endpoints, app="durable") as session,
    ):
        wait_until(lambda: set(places(cluster).values()) == {"/a/r1", "/a/r2", "/b/r3"}, "the places")
        with pytest.raises(HoldfastError, match="leave ack_copies out"):
            session.register_reduce_shuffle(4, 1, replication=3, ack_copies=2)
        session.register_reduce_shuffle(4, 1, replication=3)


def test_a_lost_worker_keeps_its_epochs_for_a_while_if_so_wished(tmp_path: Path) -> None:
    """With `stabilise` what a lost worker has stays there until that is over; then it moves without being asked."""
    settings = {"lease": {"heartbeat": "200ms", "worker": "1s"}, "placement": {"stabilise": "5s"}}
    with (
        local_cluster(1, 3, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="grace") as session,
    ):
        session.register_reduce_shuffle(12, 1, replication=2)
        before = names(explained(cluster, session))
        cluster.workers[0].kill()
        wait_until(lambda: metric(cluster, "holdfast_master_workers_alive") == 2, "the worker to be lost")
        assert names(explained(cluster, session)) == before
        assert metric(cluster, "holdfast_master_move_commands") == 0
        # A reload that changes nothing forgets nothing.
        CliRunner().invoke(holdfast, ["reload", "--masters", cluster.endpoints], standalone_mode=False)
        assert metric(cluster, "holdfast_master_move_commands") == 0
        wait_until(lambda: metric(cluster, "holdfast_master_move_commands") == 1, "the moves")
        assert all("w1" not in pair for pair in names(explained(cluster, session)))


def test_a_script_that_fails_under_the_next_leader_moves_nobody(tmp_path: Path) -> None:
    """Places are recorded: the next leader, whose script fails, has them all the same."""
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\n[ -e "$0.fails" ] && exit 1\nfor host; do echo "/dc/$host"; done\n')
    script.chmod(0o755)
    settings = {
        "lease": {"heartbeat": "200ms"},
        "placement": {"resolver": "script", "resolver_path": str(script), "refresh": "200ms"},
    }
    with local_cluster(3, 2, dir=tmp_path / "cluster", settings=settings) as cluster:
        wait_until(lambda: set(places(cluster).values()) == {"/dc/h1", "/dc/h2"}, "the places")
        (tmp_path / "script.fails").touch()
        cluster.leader().kill()
        wait_until(lambda: metric(cluster, "holdfast_master_workers_on_default_rack") == 0, "the next leader")
        log = cluster.leader().log
        wait_until(lambda: lines_of(log, LogEvent.PLACE_LOOKUP_FAILED), "it to ask")
        assert set(places(cluster).values()) == {"/dc/h1", "/dc/h2"}


def test_a_writer_waits_for_what_is_enforced_and_then_hears_of_it(tmp_path: Path, table: Path) -> None:
    """With racks enforced and one of two racks gone a map waits for its grace, not for its revives: it ends well if the
    rack comes back in time, and else with what is missing."""
    table.write_text("h1 /dc/r1\nh2 /dc/r2\n")
    settings: Sections = {
        "lease": {"heartbeat": "200ms", "worker": "1s"},
        "placement": {"resolver": "table", "resolver_path": str(table), "enforce_racks": True},
    }
    with local_cluster(1, 2, dir=tmp_path / "cluster", settings=settings) as cluster:
        other = cluster.workers[1]

        def refused() -> float:
            return metric(cluster, "holdfast_master_revives_without_room")

        with Session(cluster.endpoints, app="patient") as session, ThreadPoolExecutor(1) as pool:
            shuffle = session.register_reduce_shuffle(2, 1, replication=2)
            with shuffle.writer(0) as writer:
                other.kill()
                writer.write(0, b"kept")
                ended = pool.submit(writer.close)
                wait_until(lambda: refused() > 0, "a revive without room")
                other.start()
                shuffle.commit([ended.result()])
            assert [bytes(each.payload) for each in shuffle.reader([0, 1])] == [b"kept"]
        with Session(cluster.endpoints, app="hasty", no_room_grace=1.0) as session:
            shuffle = session.register_reduce_shuffle(2, 1, replication=2)
            other.kill()
            with shuffle.writer(0) as writer:
                writer.write(0, b"lost")
                with pytest.raises(NoRoomError, match="placement is enforced"):
                    writer.close()


def test_what_no_longer_stands_as_wished_is_repaired(tmp_path: Path, table: Path) -> None:
    """All hosts were on one rack; when one of them turns out to be on another, open partitions go on with a copy there,
    and what they had is read; a host that is refused gets none of it."""
    table.write_text("h1 /dc/r1\nh2 /dc/r1\nh3 /dc/r1\nh4 /dc/r1\n")
    settings: Sections = {
        "placement": {
            "resolver": "table",
            "resolver_path": str(table),
            "refresh": "200ms",
            "repair": True,
            "refused": ["h4"],
        }
    }
    with (
        local_cluster(1, 4, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="repaired") as session,
    ):
        shuffle = session.register_reduce_shuffle(8, 1, replication=2)
        with shuffle.writer(0) as writer:
            writer.write(0, b"kept")
            status = writer.close()
        table.write_text("h1 /dc/r1\nh2 /dc/r1\nh3 /dc/r2\nh4 /dc/r3\n")
        assert CliRunner().invoke(holdfast, ["reload", "--masters", cluster.endpoints]).exit_code == 0
        wait_until(lambda: all("w3" in pair for pair in names(explained(cluster, session))), "the repair")
        found = explained(cluster, session)
        assert not found["not_adhering"]
        assert {each["adherence"] for each in found["partitions"]} == {"strict"}
        assert all("w4" not in pair for pair in names(found))
        assert {"registered", "repaired"} <= {each["what"] for each in found["decisions"]}
        shuffle.commit([status])
        assert [bytes(each.payload) for each in shuffle.reader([0, 1])] == [b"kept"]


def test_hosts_that_nobody_knows_are_counted(tmp_path: Path, table: Path) -> None:
    """A host that is not in the table, and says nothing of itself, is at the default place, and both are told."""
    table.write_text("elsewhere /dc/r1\n")
    settings: Sections = {"placement": {"resolver": "table", "resolver_path": str(table), "refresh": "200ms"}}
    with local_cluster(1, 1, dir=tmp_path / "cluster", settings=settings) as cluster:
        wait_until(lambda: metric(cluster, "holdfast_master_rack_unresolved") > 0, "the count")
        assert metric(cluster, "holdfast_master_workers_on_default_rack") == 1


def test_what_cannot_be_moved_holds_up_nothing_else(tmp_path: Path, table: Path) -> None:
    """With racks enforced and one of two racks gone, a shuffle with two copies stays where it is; one with one copy
    moves on, and a worker that has nothing else drains."""
    table.write_text("h1 /dc/r1\nh2 /dc/r1\nh3 /dc/r2\n")
    settings: Sections = {
        "lease": {"heartbeat": "200ms", "worker": "1s"},
        "placement": {"resolver": "table", "resolver_path": str(table), "enforce_racks": True},
    }
    with (
        local_cluster(1, 3, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="enforced") as two,
        Session(cluster.endpoints, app="single") as one,
    ):
        two.register_reduce_shuffle(6, 1, replication=2)
        one.register_reduce_shuffle(6, 1)
        before = explained(cluster, two)
        cluster.workers[2].kill()
        wait_until(
            lambda: all(each["workers"][0]["name"] != "w3" for each in explained(cluster, one)["partitions"]), "moves"
        )
        assert names(explained(cluster, two)) == names(before)


def test_two_operators_cannot_drain_everybody(racks: LocalCluster) -> None:
    """Of two drains at once that together leave nobody, one is refused."""

    async def drains() -> list[object]:
        async with ControlClient(racks.endpoints) as one, ControlClient(racks.endpoints) as two:
            halves = [(one, ["w1", "w2"]), (two, ["w3", "w4"])]
            asked = [each.call("Admin/DrainWorkers", pb.DrainWorkersRequest(workers=who)) for each, who in halves]
            return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(drains())
    assert [isinstance(each, NoRoomError) for each in found].count(True) == 1


def test_every_alert_is_of_a_metric_that_is_there(racks: LocalCluster) -> None:
    """The alert rules of placement name what masters tell, and each of the three that matter has one."""
    rules = (Path(__file__).parents[2] / "deploy/prometheus/placement.yml").read_text()
    named = set(re.findall(r"holdfast_master_\w+", rules))
    assert {
        f"holdfast_master_{name}" for name in ("placement_not_adhering", "rack_unresolved", "workers_on_default_rack")
    } <= named
    for name in named:
        assert metric(racks, name) >= 0


def test_what_cannot_be_explained_or_simulated_is_said(racks: LocalCluster, tmp_path: Path) -> None:
    """An unknown shuffle, a key that is none, and a file that describes nothing get a sentence each."""
    with Session(racks.endpoints, app="none") as session:
        for words, sentence in (
            ([f"{session.instance.hex()}/7"], f"there is no shuffle {session.instance.hex()[:8]}/7"),
            (["seven"], "names no shuffle"),
            (["--simulate", str(tmp_path / "racks")], "not valid TOML"),
            ([], "name either"),
        ):
            done = CliRunner().invoke(
                holdfast, ["placement", *words, "--masters", racks.endpoints], standalone_mode=False
            )
            assert sentence in str(done.exception)
