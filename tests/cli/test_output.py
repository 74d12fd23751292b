"""What all commands print with: tables that fit, and lists that are shown again."""

import io

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast.common.errors import RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli import output
from holdfast.tools.cli.commands import shuffles, status, top
from holdfast.tools.cli.filters import chosen
from holdfast.tools.cli.output import Fitted, json_option, show, watched
from holdfast.tools.cli.records import shuffle_record, worker_record

COLUMNS = ("name", "?place", "state", "?#files", "#used")
ROWS = [("worker-a", "/region-1/rack-1", "draining", 123_456, "1.5 GiB")]


def lines(*shown: object, width: int, terminal: bool = True) -> list[str]:
    """What a terminal of so many columns, or a pipe, is sent."""
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, color_system=None).print(*shown, sep="\n")
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def test_a_table_leaves_out_what_does_not_fit():
    """Columns go from the right, only those that may, and only as many as must; what is left out is named."""
    table = Fitted(COLUMNS, ROWS)
    assert lines(table, width=80)[0].split() == ["name", "place", "state", "files", "used"]
    narrow = lines(table, width=50)
    assert narrow[0].split() == ["name", "place", "state", "used"]
    assert narrow[-1] == "too narrow for: files; --json has all"
    assert lines(table, width=30)[0].split() == ["name", "state", "used"]
    assert "files" in lines(table, width=50, terminal=False)[0], "a pipe gets all"


@pytest.mark.parametrize("width", [80, 120])
def test_lists_fit_the_terminal(width: int):
    """Workers and shuffles with long names, as the lists and the live screen draw them: no line is too long, and names
    and states are there."""
    disk = pb.Directory(path="/data1/holdfast", tier="SSD", state="healthy", healthy=True, used_bytes=1 << 40)
    worker = pb.WorkerInfo(
        worker=1,
        name="worker-17",
        host="node-1234.example.com",
        place="/eu-west/rack-0017",
        data_address="node-1234.example.com:7071",
        state="alive",
        files=1 << 20,
        directories=[disk],
    )
    key = pb.ShuffleKey(instance=b"i" * 16, shuffle=7)
    shuffle = pb.ShuffleInfo(
        key=key,
        application="nightly report of sales",
        user="ann",
        kind=pb.PARTITION_KIND_MAP,
        state="open",
        bytes=1 << 50,
        why="its application has a lease that ends in 55 s, and one more",
    )
    text = io.StringIO()
    screen = Console(file=text, width=width, force_terminal=True, color_system=None)
    status._draw_workers([worker_record(worker)], [], screen)
    shuffles._draw_shuffles([shuffle_record(shuffle)], 1, screen)
    drawn = [
        *text.getvalue().splitlines(),
        *lines(*top.drawn(top.document_of([worker], [shuffle], 1, 20)), width=width),
    ]
    tables = [line for line in drawn if not line.startswith("mean write")]
    assert max(map(len, tables)) <= width
    assert all(any(word in line for line in drawn) for word in ("worker-17", "alive", "open"))


def test_filters_are_all_met():
    """Hosts, racks and states choose among the workers that were named, or all; a rack by its name in all regions, by
    its place in one."""
    hosts_and_states = [("a", "alive"), ("a", "lost"), ("b", "lost"), ("c", "gone")]
    places = ["/r1/k1", "/r1/k1", "/r1/k2", "/r2/k1"]
    workers = [
        pb.WorkerInfo(worker=number, name=f"w{number}", host=host, state=state, place=place)
        for number, ((host, state), place) in enumerate(zip(hosts_and_states, places, strict=True))
    ]

    def names(
        *words: str, hosts: tuple[str, ...] = (), states: tuple[str, ...] = (), racks: tuple[str, ...] = ()
    ) -> list[str]:
        return [each.name for each in chosen(workers, words, hosts, states, racks)]

    assert names(states=("lost",)) == ["w1", "w2"]
    assert names(hosts=("a", "c")) == ["w0", "w1", "w3"]
    assert names("w1", "b", hosts=("b",), states=("lost", "gone")) == ["w2"]
    assert names(racks=("k1",)) == ["w0", "w1", "w3"]
    assert names(racks=("/r1/k1", "k2")) == ["w0", "w1", "w2"]
    assert names("a", states=("lost",), racks=("k1",)) == ["w1"]
    assert names(racks=("/r1", "r1", "1")) == []


def test_nothing_is_told_of_the_disks_of_a_worker_that_is_away():
    """What it said last is old, and a new leader never heard it: no state, no room and no problem is shown."""
    disks = [pb.Directory(path="/data", tier="SSD", state="well", free_bytes=1 << 30)]
    for healthy in (True, False):
        disks[0].healthy = healthy
        text = io.StringIO()
        screen = Console(file=text, width=120, color_system=None)
        status._draw_workers([worker_record(pb.WorkerInfo(name="w1", state="lost", directories=disks))], [], screen)
        row = next(line for line in text.getvalue().splitlines() if "/data" in line)
        assert "well" not in row
        assert "GiB" not in row
        assert "problem" not in text.getvalue()


def test_full_directories_are_told():
    """Each as a warning; that no other one is left is a problem. Those of workers that are away do not count."""

    def worker(name: str, *full: str, state: str = "alive") -> pb.WorkerInfo:
        disks = [pb.Directory(path=f"/{number}", full=text) for number, text in enumerate(full)]
        return pb.WorkerInfo(name=name, state=state, directories=disks)

    assert status._full([worker("w1", ""), worker("w2", "", "0 B left")]) == (["w2 /1: 0 B left"], [])
    assert status._full([worker("w1", ""), worker("w2", "0 B left", state="lost")]) == ([], [])
    warnings, problems = status._full([worker("w1", *["0 B left"] * 11), worker("w2", "", state="lost")])
    assert len(warnings) == 11
    assert warnings[-1] == "and 1 more directories are full: see `holdfast workers`"
    assert problems == ["no worker takes new data: every directory is full or cannot be used; make room or add workers"]


def test_a_list_is_watched_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch):
    """--watch shows it again and again, goes on where masters do not answer, and ends with 0; with --json it is
    refused."""
    answers = iter(["first", RetryError("no answer"), "second", KeyboardInterrupt()])

    @click.command()
    @watched
    @json_option
    def listed(as_json: bool) -> int:
        found = next(answers)
        if isinstance(found, BaseException):
            raise found
        show({}, as_json, lambda screen: screen.print(found))
        return 1

    monkeypatch.setattr(output, "_LOOK_SECONDS", 0)
    done = CliRunner().invoke(listed, ["--watch"], standalone_mode=False)
    assert (done.return_value, done.stdout, done.stderr) == (0, "first\nsecond\n", "holdfast: no answer\n")
    refused = CliRunner().invoke(listed, ["--watch", "--json"], standalone_mode=False)
    assert "choose one of the two" in str(refused.exception)
