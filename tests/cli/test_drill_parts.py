"""The judging parts of the drills and benchmarks: a drill is worth something only if it can fail."""

import re

import click
import pytest
from rich.console import Console

from holdfast.common.formats.batch import parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.ids import (
    BROADCAST_PARTITION,
    AttemptId,
    Epoch,
    Generation,
    Instance,
    MapFileKey,
    MapId,
    PartitionId,
    ShuffleId,
    ShuffleKey,
)
from holdfast.common.sizes import in_bytes
from holdfast.tools.benches.figures import Figure
from holdfast.tools.cli.commands.drill import drill
from holdfast.tools.cli.main import run
from holdfast.tools.cli.output import in_seconds, percentile
from holdfast.tools.drills.catalogue import CATALOGUE, draw_all
from holdfast.tools.drills.support.ledger import Ledger, ShuffleState
from holdfast.tools.drills.support.map_files import MapFile
from holdfast.tools.drills.support.report import Report


def ledger() -> Ledger:
    """Shuffle 1 open, 2 committed, 3 dropped, all acknowledged."""
    made = Ledger()
    made.acknowledge(1, ShuffleState.OPEN)
    made.acknowledge(2, ShuffleState.COMMITTED, b"w")
    made.acknowledge(3, ShuffleState.GONE)
    return made


def test_ledger_agrees_with_what_was_acknowledged():
    """The acknowledged states are no violation, whether a dropped shuffle is listed as such or not at all."""
    assert list(ledger().violations({1: "open", 2: "committed"})) == []
    assert list(ledger().violations({1: "open", 2: "committed", 3: "dropped"})) == []
    assert list(ledger().committed()) == [(2, b"w")]


@pytest.mark.parametrize(
    ("listed", "shuffle"),
    [
        ({2: "committed"}, 1),
        ({1: "open"}, 2),
        ({1: "open", 2: "open"}, 2),
        ({1: "open", 2: "committed", 3: "open"}, 3),
        ({1: "open", 2: "committed", 4: "open"}, 4),
    ],
)
def test_ledger_finds_what_was_forgotten(listed: dict[int, str], shuffle: int):
    """A register, commit or unregister that was forgotten, and a shuffle that nobody asked for, are named."""
    (sentence,) = ledger().violations(listed)
    assert f"shuffle {shuffle} " in sentence


def test_ledger_allows_both_outcomes_of_an_unanswered_command():
    """Between sending and the answer either state is right; after the answer only one is."""
    made = ledger()
    made.attempt(1, ShuffleState.COMMITTED)
    assert list(made.violations({1: "open", 2: "committed"})) == []
    assert list(made.violations({1: "committed", 2: "committed"})) == []
    made.acknowledge(1, ShuffleState.COMMITTED, b"x")
    assert len(list(made.violations({1: "open", 2: "committed"}))) == 1


def test_ledger_keeps_finding_what_came_back():
    """A dropped shuffle that was taken off the books is still found when it is listed again."""
    made = ledger()
    made.forget_gone()
    assert 3 not in made.entries
    assert len(list(made.violations({1: "open", 2: "committed", 3: "committed"}))) == 1


def test_report_is_bad_when_a_check_fails_or_nothing_was_checked():
    """The verdict needs every round, at least one check, and no broken promise."""
    report = Report("x", seed=1, rounds=1)
    verdicts = [report.good]
    report.done = 1
    verdicts.append(report.good)
    report.check("something", True, "")
    verdicts.append(report.good)
    report.check("something", False, "it is gone")
    verdicts.append(report.good)
    assert verdicts == [False, False, True, False]
    assert report.failures == ["it is gone"]


def test_report_judges_times_by_their_limit():
    """A p99 above its limit makes a report bad."""
    for slow, good in ((1.0, True), (2.0, False)):
        report = Report("x", seed=1, rounds=0, limits={"failover": 1.5})
        report.time("failover", 0.5)
        report.time("failover", slow)
        report.close()
        assert report.good is good


def test_percentile_is_the_nearest_rank():
    """No value is made up: percentiles are measured values, and p100 is the largest."""
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([3.0], 0.99) == 3.0


def test_figures_know_whether_they_reach_their_limit():
    """Less is better for times, more for rates; without a limit nothing is said."""
    assert Figure("s", "n", 1.0, "s", 2.0).reached is True
    assert Figure("s", "n", 1.0, "1/s", 2.0, less_is_better=False).reached is False
    assert Figure("s", "n", 1.0, "s").reached is None


def test_people_see_units():
    """Sizes and spans are shown in the unit that suits them."""
    assert [in_bytes(size) for size in (10, 1536, 3 << 30)] == ["10 B", "1.5 KiB", "3.0 GiB"]
    assert [in_seconds(span) for span in (4e-6, 0.25, 3.0, 130.0)] == ["4 µs", "250.0 ms", "3.00 s", "2 min 10 s"]


def test_drill_files_are_made_again_equal_and_hold_whole_batches():
    """The content of a file follows from its key and differs between keys; its totals are those of its batches."""
    shuffle = ShuffleKey(Instance(bytes(16)), ShuffleId(1), Generation(0))
    files = [MapFile(MapFileKey(shuffle, MapId(n), AttemptId(n), Epoch(0)), seed=3) for n in range(20)]
    for file in files:
        regions, totals = file.make()
        assert file.make() == (regions, totals)
        batches = [
            batch
            for region in regions
            for partition, data in region
            for batch in parse_batches(memoryview(data), partition_seed(shuffle, PartitionId(partition)))
        ]
        assert (len(batches), len(regions)) == (totals.batches, totals.regions)
        assert sum(batch.crc for batch in batches) & (1 << 64) - 1 == totals.crc_sum
    assert len({str(file.content()) for file in files}) == len(files)
    assert any(region[0][0] == BROADCAST_PARTITION for file in files for region in file.make()[0])


def test_all_names_the_drills_that_it_knows(capsys: pytest.CaptureFixture[str]):
    """A name that is none is refused before any server starts; exit 2."""
    assert run(["drill", "all", "--only", "earthquake"]) == 2
    reported = capsys.readouterr().err
    assert "'earthquake'" in reported
    assert all(name in reported for name in ("leader --stop", "rack", "clock-skew"))


def test_many_drills_are_drawn_together():
    """Drills that were run several times have a line with how many were good; what is bad is told whole, and how to
    repeat it."""
    good, bad = (
        Report("rack", seed=1, rounds=0),
        Report("rack", seed=2, rounds=0, repeat="holdfast drill rack --seed 2"),
    )
    good.check("x", True, "")
    bad.check("x", False, "record 7 [of 9] is missing")
    screen = Console(width=200)
    with screen.capture() as captured:
        draw_all(screen, [good, bad])
    reported = captured.get()
    assert re.search(r"rack +2 +1 +0", reported)
    assert "record 7 [of 9] is missing" in reported
    assert "holdfast drill rack --seed 2" in reported


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_short_drill_can_be_given_as_a_command(name: str):
    """The name of a drill, with its options, is what `holdfast drill` takes."""
    words = f"{name}{CATALOGUE[name].options} --count 1 --seed 1".split()
    command = drill.get_command(click.Context(drill), words[0])
    assert command is not None
    assert command.make_context(words[0], words[1:]).params["count"] == 1
