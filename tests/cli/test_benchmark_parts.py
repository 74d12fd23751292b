"""The judging parts of the benchmarks: what is counted and compared, from what was measured."""

import asyncio
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.compare import compared, line, parsed
from benchmarks.control_groups import Hierarchy, less_memory, seeking
from benchmarks.disk_operations import Stage, ratios
from benchmarks.disks import Requests, sequential
from benchmarks.report import Origin, Spread, picture, table
from benchmarks.sides import Run
from holdfast.client.cluster.local import local_cluster
from holdfast.common.limits import GIB
from holdfast.tools.benches import scale
from holdfast.tools.benches.small import register_and_commit

SVG = "{http://www.w3.org/2000/svg}"


def run(seconds: float, cpu_s: float = 1.0, write_cpu_s: float = 0.0) -> Run:
    """One run that took so long."""
    return Run(seconds, cpu_s, result="7", written=0, write_cpu_s=write_cpu_s, pushed=0, fetched=0)


def test_sides_are_compared_round_by_round():
    """The ratio of a side is the median of its ratios to the first side within each round, beside least and most: a
    round in which the machine was slow for all counts as much as any other."""
    rounds = [
        {"spark": run(1.0, 2.0), "holdfast": run(0.9, 3.0)},
        {"spark": run(10.0, 2.0), "holdfast": run(8.0, 1.0)},
        {"spark": run(1.0, 2.0), "holdfast": run(1.5, 2.0)},
    ]
    first, other = compared("big", rounds)
    assert (first.workload, first.side, first.ratio) == ("big", "spark", Spread(1.0, 1.0, 1.0))
    assert (other.side, other.rounds, other.seconds) == ("holdfast", 3, Spread(1.5, 0.9, 8.0))
    assert other.ratio == Spread(0.9, 0.8, 1.5)
    assert other.cpu_ratio == Spread(1.0, 0.5, 1.5)
    assert line(other)["ratio"] == [0.9, 0.8, 1.5]
    assert "floor_ratio" not in line(other)


def test_ratios_to_the_floor_say_what_is_left_to_win():
    """Where the floor is a side, every one has its ratio to it."""
    (first, *_, last) = compared("big", [{"spark": run(3.0), "holdfast": run(2.4), "floor": run(2.0)}])
    assert (first.floor_ratio, last.floor_ratio) == (Spread(1.5, 1.5, 1.5), Spread(1.0, 1.0, 1.0))
    assert line(first)["floor_ratio"] == [1.5, 1.5, 1.5]


def test_the_cpu_of_map_tasks_is_compared_where_both_sides_have_it():
    """Spark counts the CPU of tasks that write to its own shuffle or to the plug-in; of `shuffle`, which writes in
    tasks like any other, nothing is said."""
    found = compared("big", [{"spark": run(1, 1, 4.0), "holdfast": run(1, 1, 3.0), "jar-free": run(1, 1)}])
    assert [line(each).get("write_cpu_ratio") for each in found] == [[1.0] * 3, [0.75] * 3, None]
    assert "| `big` | holdfast | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) | 0.75 (0.75–0.75) |" in table(
        found, ORIGIN
    )
    assert "| 1.00 (1.00–1.00) |  |\n" in table(found, ORIGIN)


def test_what_is_many_jobs_says_what_each_costs_more():
    """The fixed cost of a shuffle is a difference, which a ratio to the job's own time hides: milliseconds of each job
    over those of the first side, by as many jobs as that scale has."""
    first, other = compared("small", [{"spark": run(1.2), "holdfast": run(1.5)}], scale=2)
    assert (line(first)["job_over_ms"], line(other)["job_over_ms"]) == ([0.0] * 3, [5.0] * 3)
    assert "ms a job over spark |" in table([first, other], ORIGIN)
    assert "job_over_ms" not in line(compared("big", [{"spark": run(1.2), "holdfast": run(1.5)}])[1])


ORIGIN = Origin(
    "A <fast> machine, 2 cores", "Holdfast 0.1.0, Spark 4.1.2", "abc1234", "python -m benchmarks.compare big"
)


def test_figures_say_where_they_come_from():
    """Table and picture have each side's median and spread, and machine, versions, commit and command; the picture is
    XML whatever these are, with a bar for each side but the first."""
    found = compared("big", [{"spark": run(1.0), "holdfast": run(0.8)}, {"spark": run(2.0), "holdfast": run(2.4)}])
    text = table(found, ORIGIN)
    assert "| `big` | holdfast | 1.60 (0.80–2.40) | 1.00 (0.80–1.20) | 1.00 (1.00–1.00) |" in text
    drawn = ElementTree.fromstring(picture(found, ORIGIN))
    assert [bar.findtext(f"{SVG}title") for bar in drawn.iter(f"{SVG}g")] == ["holdfast, big: 1.00 (0.80–1.20)"]
    said = " ".join("".join(each.itertext()) for each in drawn.iter(f"{SVG}text"))
    for part in ORIGIN:
        assert part in text
        assert part in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bigger"], "there is no workload bigger: big, "),
        (["tiny", "--sides", "spark", "other"], "there is no side other: spark, "),
        (["tiny", "--sides", "spark"], "name two sides at least"),
        (["tiny", "--sides", "spark", "holdfast", "spark"], "each once"),
        (["tiny", "--sides", "spark", "jar-free"], "jar-free has big, "),
        (["tiny", "--pairs", "0"], "--pairs is 1 at least"),
        (["tpch"], "set HOLDFAST_TPCH to a directory made by"),
        (["tiny", "--sides", "spark", "other", "--service", "other=/nowhere"], "/nowhere has no start"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A comparison that cannot be made, or would compare a side with itself, is refused by the command line."""
    monkeypatch.delenv("HOLDFAST_TPCH", raising=False)
    with pytest.raises(SystemExit):
        parsed(words)
    assert said in capsys.readouterr().err


def test_a_service_is_a_side_by_its_name(tmp_path: Path):
    """Where nothing is said, Spark's own shuffle is compared with the plug-in; a service is a side where one says how
    it starts."""
    assert parsed([]).sides == ["spark", "holdfast"]
    assert parsed([]).workloads == ["big", "wide", "tiny"]
    assert parsed(["big", "--sides", "plain-rows", "holdfast"]).sides == ["plain-rows", "holdfast"]
    for part in ("start", "spark.conf"):
        (tmp_path / part).touch()
    options = parsed(["tiny", "--sides", "spark", "other", "--service", f"other={tmp_path}"])
    assert options.service == [("other", str(tmp_path))]


def test_what_a_job_waits_for_masters_is_summed_shuffle_by_shuffle():
    """Register and commit of each shuffle count together, its pushes and reads do not, and the limit is 20 ms."""
    spans = [[0.001, 1.0, 0.020, 1.0], [0.020, 1.0, 0.001, 1.0], [0.002, 1.0, 0.016, 1.0]]
    figure = register_and_commit(spans)
    assert (figure.name, round(figure.value, 4)) == ("register + commit, 1,000 partitions", 0.021)
    assert figure.reached is False
    assert register_and_commit(spans[2:]).reached is True
    assert "register 2.0 ms, push 1000.0 ms, commit 16.0 ms" in figure.note


#: What /sys/block/loop0/stat says, and that a while later: reads, merged, sectors, ms, writes, merged, sectors, ms, …
STATS = (
    "      10        1      80       3      20       2     160       7       0       9      10       0 0 0 0      4 5",
    "     110        3    3280      30     520      42   32160      70       0      90     100       0 0 0 0      9 9",
)


def test_requests_are_those_of_the_kernel():
    """Requests, bytes and flushes are the growth of the device's own counters, by the GiB that was shuffled."""
    before, after = map(Requests.of, STATS)
    found = after.since(before)
    assert found == Requests(100, 2, 3_200 * 512, 500, 40, 32_000 * 512, 5)
    line = found.line(2 * GIB)
    assert (line["reads_a_gib"], line["writes_a_gib"], line["flushes"]) == (50, 250, 5)
    assert (line["mean_read_kib"], line["mean_write_kib"]) == (16.0, 32.0)


def test_disks_are_compared_by_what_each_stage_costs():
    """Reads are those of the reduce stage; writes and flushes those of both: who reads may still bring some about. The
    time of a job is that of both stages. What is not known, or never happened to the other, has no ratio."""
    own = {
        "map": Stage(8.0, Requests(9, 0, 9, 60, 0, 600, 0), 9),
        "reduce": Stage(2.0, Requests(200, 0, 2, 40, 0, 400, 0), 100),
    }
    ours = {
        "map": Stage(4.0, Requests(7, 0, 7, 20, 0, 300, 1), None),
        "reduce": Stage(1.0, Requests(10, 0, 2, 5, 0, 200, 2), 2),
    }
    found = ratios(own, ours)
    assert found == {
        "map_seconds_ratio": 0.5,
        "reduce_seconds_ratio": 0.5,
        "seconds_ratio": 0.5,
        "reads_ratio": 0.05,
        "read_seeks_ratio": 0.02,
        "writes_ratio": 0.25,
        "written_bytes_ratio": 0.5,
        "flushes_ratio": None,
    }
    unknown = ours | {"reduce": ours["reduce"]._replace(read_seeks=None)}
    assert ratios(own, unknown)["read_seeks_ratio"] is None


HEAD = "# tracer: nop\n#\n# entries-in-buffer/entries-written: {}/4   #P:2\n"
ISSUED = "".join(
    f"      java-40{at} [000] d..1. 1.5: block_rq_issue: 7,0 {how} {512 * count} () {at} + {count} be,0,4 [java]\n"
    for at, count, how in ((2048, 256, "RA"), (2304, 8, "R"), (9000, 8, "RM"), (2312, 8, "R"))
)


def test_the_share_of_sequential_reads_is_what_needs_no_seek():
    """A read is sequential if it begins where the one before it ended, wherever else others had; where the kernel kept
    only a part of the trace, nothing is said."""
    assert sequential(HEAD.format(4) + ISSUED) == 0.25
    assert sequential(HEAD.format(3) + ISSUED) is None
    assert sequential(HEAD.format(0)) is None


def test_groups_are_those_of_the_version_that_has_the_controller(tmp_path: Path):
    """A machine may have both versions mounted, and a controller in one of them: version 1 names it in the mount,
    version 2 in a file. Where none has it the program ends, and limits nothing."""
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")
    mounts = f"cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\ncgroup2 {tmp_path} cgroup2 rw 0 0\n"
    assert Hierarchy.of(mounts, "memory", "memory") == (Path("/sys/fs/cgroup/memory"), 1, "memory")
    assert Hierarchy.of(mounts, "blkio", "io") == (tmp_path, 2, "io")
    with pytest.raises(SystemExit, match="there is no control group with the controller pids"):
        Hierarchy.of(mounts, "pids", "pids")


def test_memory_and_seeks_share_the_one_group_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A process is in one group of version 2, so both limits are in that; the disk's goes when the disk does, and the
    group with the memory's. No swap takes the place of memory."""
    (tmp_path / "cgroup.controllers").write_text("io memory\n")
    switch = tmp_path / "cgroup.subtree_control"
    switch.write_text("io\n")
    mounts, own, number = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", str(os.getpid()), os.stat("/dev/null").st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)  # the kernel's files go with their directory
    with less_memory("2G", mounts) as by:
        group = tmp_path / f"holdfast-{own}"
        assert switch.read_text() == "+memory"
        assert (by, (group / "cgroup.procs").read_text()) == ("cgroup v2", own)
        assert [(group / f"memory.{what}").read_text() for what in ("max", "swap.max")] == ["2G", "0"]
        with seeking("/dev/null", 8, mounts) as slow:
            assert slow == "cgroup v2: 125 reads and 125 writes a second"
            assert (group / "io.max").read_text() == f"{name} riops=125 wiops=125"
        assert (group / "io.max").read_text() == f"{name} riops=max wiops=max"
    assert (tmp_path / "cgroup.procs").read_text() == own
    assert switch.read_text() == "-memory", "what was on before stays on"
    assert not group.exists()


def test_seeks_of_version_1_are_those_of_the_kernel_as_well(tmp_path: Path):
    """Of version 1 the kernel writes back in the root group, so the limit is there, and goes with the disk."""
    number = os.stat("/dev/null").st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    files = [tmp_path / f"blkio.throttle.{way}_iops_device" for way in ("read", "write")]
    with seeking("/dev/null", 4, f"cgroup {tmp_path} cgroup rw,blkio 0 0\n") as slow:
        assert slow == "cgroup v1: 250 reads and 250 writes a second"
        assert [file.read_text() for file in files] == [f"{name} 250"] * 2
    assert [file.read_text() for file in files] == [f"{name} 0"] * 2
    assert (tmp_path / "cgroup.procs").read_text() == str(os.getpid())


def test_the_masters_part_of_a_large_shuffle_is_measured_small(tmp_path: Path):
    """Masters place every partition twice, seal both epochs on workers that answer at once, and give the manifest to
    executors; a figure is only told if every copy of every epoch was sealed."""
    with local_cluster(masters=1, workers=0, dir=tmp_path, settings=scale.SETTINGS) as cluster:
        figures = {each.name: each for each in asyncio.run(scale.measure(cluster, scale.Size(5, 30, 700)))}
    assert figures["registered"].note == "30 maps × 700 partitions, 2 copies on 5 workers"
    assert figures["committed"].note.startswith("1,400 epochs of 1,024 MiB")
    assert all(each.value > 0 for each in figures.values())
