"""Every drill finds what it is for: with its safety taken away by a planted mistake, its verdict is bad.

The mistakes are in real servers (mistakes.py), in the reader, or in the settings. One of these runs by default.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.read import push_reader, reader
from holdfast.client.session import Session
from holdfast.common.formats import batch
from holdfast.common.formats.checksum import crc32c
from holdfast.common.limits import MIB
from holdfast.tools.drills import (
    bit_flip,
    clock_skew,
    disk_full,
    disk_slow,
    driver,
    failure_domain,
    leader,
    masters,
    partition,
    push,
    restored,
    rolling,
    worker,
)
from holdfast.tools.drills.running import Drill, Ground, run_drill
from holdfast.tools.drills.support.report import Report

PLANT_PATH = Path(__file__).parent / "plant"
LONG = pytest.mark.long


def with_mistake(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Servers that start from now on make this mistake."""
    import os

    path = os.pathsep.join(filter(None, [str(PLANT_PATH), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("HOLDFAST_TEST_MISTAKE", name)


def clock_ground() -> tuple[Drill, Ground]:
    """The drill of clocks, with the clocks of one seed."""
    return clock_skew.drill, clock_skew.ground(1)


SLOW = 64 * MIB
#: A commit does not wait long for a worker that stays away.
GIVEN_UP_SOON = {"return_grace": "2s"}
FAULTS = [
    pytest.param(
        "enospc_taken_for_success", lambda: (disk_full.drill, disk_full.GROUND), 1, "", id="disk-full", marks=LONG
    ),
    pytest.param(
        "acknowledged_before_the_write",
        lambda: (partial(push.drill, copies=1), Ground(workers=push.workers(1))),
        4,
        "",
        id="push",
        marks=LONG,
    ),
    pytest.param(
        "copies_count_before_they_are_made",
        lambda: (restored.drill, restored.GROUND),
        1,
        "",
        id="restored",
        marks=LONG,
    ),
    pytest.param(
        "leases_end_at_once",
        lambda: (partial(driver.drill, files=False), driver.GROUND),
        1,
        "",
        id="driver",
        marks=LONG,
    ),
    pytest.param("leases_by_the_clock_of_the_day", clock_ground, 3, "no lease ends early", id="clock-skew", marks=LONG),
    pytest.param("answers_without_proof", partition.ground, 1, "no stale answer", id="partition", marks=LONG),
    pytest.param(
        "answers_without_proof",
        lambda: (leader.drill_stop, Ground()),
        5,
        "no stale answer",
        id="leader --stop",
        marks=LONG,
    ),
    pytest.param(
        "nobody_stands_for_election", lambda: (leader.drill_kill, Ground()), 1, "nothing hangs", id="leader", marks=LONG
    ),
    pytest.param("acknowledged_before_the_journal", lambda: (masters.drill, Ground()), 2, "", id="masters", marks=LONG),
    pytest.param(
        "seal_answered_before_it_is_done",
        lambda: (worker.drill, Ground()),
        8,
        "acknowledged seals read back equal",
        id="worker",
        marks=LONG,
    ),
    pytest.param(
        "windows_without_a_bound",
        lambda: (
            partial(disk_slow.drill, clients=32, seconds=6.0, memory=SLOW),
            Ground(settings=disk_slow.settings(SLOW)),
        ),
        1,
        "memory inside the budget",
        id="disk-slow",
        marks=LONG,
    ),
]


@pytest.mark.parametrize(("mistake", "make", "rounds", "broken"), FAULTS)
def test_drill_finds_the_mistake_in_its_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str, make, rounds: int, broken: str
) -> None:
    """With a safety removed from the servers, the drill that is for it says which promise was broken."""
    monkeypatch.setattr(leader, "_COMMAND_SECONDS_MAX", 8.0)
    with_mistake(monkeypatch, mistake)
    drill, ground = make()
    judge(run_drill("planted", drill, rounds, 1, tmp_path, ground), broken)


def test_drill_finds_a_reader_that_believes_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With checksums not looked at, flipped bytes are delivered, and the drill sees that."""
    for module in (push_reader, reader):
        monkeypatch.setattr(module, "parse_batches", unverified)
    report = run_drill("planted", bit_flip.drill, 3, 1, tmp_path, bit_flip.GROUND)
    judge(report, "a read is right, or refused as damaged")


def unverified(data: memoryview, seed: int) -> Iterator[batch.Batch]:
    """What parse_batches yields, whatever the checksums say."""
    offset = 0
    while offset < len(data):
        size = batch.whole_batch_bytes(data, offset)
        assert size is not None
        mended = bytearray(data[offset : offset + size])
        reported = mended[batch._CRC_OFFSET : batch.HEADER_BYTES]
        crc = crc32c(memoryview(mended)[batch.HEADER_BYTES :], crc32c(mended[: batch._CRC_OFFSET], seed))
        mended[batch._CRC_OFFSET : batch.HEADER_BYTES] = batch._CRC.pack(crc)
        (found,) = batch.parse_batches(memoryview(mended), seed)
        yield found._replace(crc=batch._CRC.unpack(reported)[0])
        offset += size


@LONG
@pytest.mark.parametrize("copies", [2, 3])
def test_drill_finds_copies_on_one_rack(tmp_path: Path, copies: int) -> None:
    """Where copies may be on one rack, racks that are killed take data with them."""
    ground = failure_domain.RACK.ground(copies)
    ground = ground.with_settings({"placement": {"policy": "random"}, "worker": GIVEN_UP_SOON})
    judge(run_domain(failure_domain.RACK, copies, tmp_path, ground), "no partition is lost")


@LONG
def test_drill_finds_copies_in_one_region(tmp_path: Path) -> None:
    """Where copies have to be on two racks, not in two regions, a region has all copies of something."""
    racks = {f"w{at}": {"worker": {"rack": f"/region{at % 2 + 1}/r{at}"}} for at in range(1, 7)}
    ground = replace(failure_domain.RACK.ground(2), workers=6, own=racks).with_settings({"worker": GIVEN_UP_SOON})
    judge(run_domain(failure_domain.REGION, 2, tmp_path, ground), "copies do not fail together")


@LONG
@pytest.mark.parametrize("copies", [2, 3])
def test_drill_finds_copies_on_one_host(tmp_path: Path, copies: int) -> None:
    """Where one machine passes for two hosts, it has two copies of something."""
    second = {f"w{number}-2": {"worker": {"host": f"other{number}"}} for number in range(1, copies + 1)}
    ground = replace(failure_domain.HOST.ground(copies), workers=copies, own=second)
    machines = failure_domain.HOST._replace(of=by_machine)
    found = run_domain(machines, copies, tmp_path, ground.with_settings({"worker": GIVEN_UP_SOON}))
    judge(found, "copies do not fail together")


def run_domain(domain: failure_domain.FailureDomain, copies: int, path: Path, ground: Ground) -> Report:
    """Three rounds of the drill of hosts, racks or regions on another ground than its own."""
    return run_drill("planted", partial(failure_domain.drill, domain=domain, copies=copies), 3, 1, path, ground)


def by_machine(cluster: LocalCluster, _: Session) -> failure_domain.Domains:
    """w1 and w1-2 are on one, whatever they say."""
    machines: dict[str, list[Server]] = {}
    for each in cluster.workers:
        machines.setdefault(each.name.partition("-")[0], []).append(each)
    return machines


@LONG
def test_drill_finds_workers_that_end_at_once(tmp_path: Path) -> None:
    """Where a worker does not wait until nothing is open there, it says so itself."""
    ground = Ground(workers=rolling.workers(1), settings={"worker": {"drain_timeout": "0s"}})
    drill = partial(rolling.drill, copies=1)
    judge(run_drill("planted", drill, 1, 1, tmp_path, ground), "workers end when that is safe")


@LONG
@pytest.mark.timeout(900)
def test_drill_finds_lost_files_under_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a worker has lost its files after a start, maps run a second time for a read."""
    pytest.importorskip("pyspark")
    from holdfast.tools.drills.spark import drill as spark

    with_mistake(monkeypatch, "nothing_left_after_a_start")
    drill = partial(spark.drill, killed=spark.Killed.REUSE, copies=1, every=None)
    ground = spark.ground(spark.Killed.REUSE, 1)
    judge(run_drill("planted", drill, 1, 1, tmp_path, ground), "no map runs for another read")


def judge(report: Report, broken: str) -> None:
    """The verdict is bad, since this was broken."""
    assert not report.good
    assert report.failures
    assert not broken or broken in report.broken, report.failures
