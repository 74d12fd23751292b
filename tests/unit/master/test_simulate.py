"""`holdfast placement --simulate`: what a policy would do on a described cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.master.simulate import main

CLUSTER = """
[shuffle]
partitions = 10000
copies = 2
[placement]
{placement}
[[cluster.workers]]
count = 60
host = "h{{n}}"
racks = 6
place = "/dc/r{{rack}}"
free = ["100GiB", "200GiB"]
fetch = ["5ms", "7ms", "9ms"]
{workers}
"""


def simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str], placement: str = "", workers: str = ""):
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER.format(placement=placement, workers=workers))
    status = main([str(path)])
    said = capsys.readouterr()
    return json.loads(said.out) if not status else said.err


def test_equal_workers_are_equally_full_and_racks_differ(tmp_path: Path, capsys) -> None:
    """Ten thousand pairs over sixty workers: the fullest has at most 1.05 times the mean, no pair is on one rack, and a
    partition takes less than ten bytes in the command."""
    found = simulated(tmp_path, capsys)
    assert found["fullest_to_mean"] <= 1.05
    assert (found["not_adhering"], found["on_one_rack"]) == (0, 0)
    assert found["encoded_bytes"] < 100_000
    assert len(found["by_worker"]) == 60
    assert len(found["by_rack"]) == 6


@pytest.mark.parametrize("order", ["weighted", "loadaware"])
def test_other_orders_keep_to_their_shares(tmp_path: Path, capsys, order: str) -> None:
    """Every worker has its share, give or take 2 %."""
    found = simulated(tmp_path, capsys, placement=f'order = "{order}"')
    assert found["farthest_from_share"] <= 0.02
    assert found["most"] > 1.1 * found["least"]


def test_spared_workers_get_nothing_and_a_rack_alone_is_reported(tmp_path: Path, capsys) -> None:
    """Workers that flap get nothing while others do, though copies then share the one rack that is left: that is told.
    Where there is no other rack at all it is as wished."""
    spared = '[[cluster.workers]]\nhost = "s"\nplace = "/dc/r9"\nspared = true'
    assert simulated(tmp_path, capsys, workers=spared)["by_worker"][-1]["partitions"] == 0
    path = tmp_path / "one.toml"
    alone = '[[cluster.workers]]\ncount = 3\nplace = "/dc/r1"\n'
    for text, missing in ((alone, 0), (alone + spared, 1_000)):
        path.write_text(text)
        assert main([str(path)]) == 0
        assert json.loads(capsys.readouterr().out)["not_adhering"] == missing


@pytest.mark.parametrize(
    ("placement", "workers", "sentence"),
    [
        ('order = "fast"', "", "placement.order must be one of"),
        ("", '[[cluster.workers]]\nhost = "h{x}"', "nothing else in braces"),
        ("", "[[cluster.workers]]\ncount = 0", "count is 1 to"),
        ("", '[[cluster.workers]]\nplace = "/dc/r1/x"', "has another depth"),
        ('policy = "regionaware"\ndurable_regions = 2', "", "2 regions are wanted"),
        ("enforce_racks = true", "[[cluster.workers]]\nracks = 0", "racks at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(tmp_path: Path, capsys, placement, workers, sentence) -> None:
    """Exit 2 and a sentence."""
    assert sentence in simulated(tmp_path, capsys, placement=placement, workers=workers)
