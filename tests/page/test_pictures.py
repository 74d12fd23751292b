"""The pictures of the documentation: the status page, the page of a shuffle, a terminal and a notebook.

Each is taken of something real, and the text in it is looked at before it is kept. Those of the documentation are made
anew by `HOLDFAST_TEST_PHOTOGRAPHS=docs/images tox -e page -- tests/page/test_pictures.py`.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.common.net.control import ControlClient
from tests.page.browser import Seen, browser, picture_of
from tests.page.terminal import COLUMNS, drawn, lines_of, typed
from tests.page.test_photographs import CALM, photographs_of, with_beats
from tests.page.world import SETTINGS, busy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

PICTURE_BYTES_MAX = 250_000
SVG_BYTES_MAX = 150_000
PARTITIONS, MAPS = 200, 8
#: A rack for each host, and directories whose use can be seen.
MACHINES: dict[str, Any] = {
    "hosts": 3,
    "workers_per_host": 2,
    "own": {
        f"w{host}{number}": {"worker": {"rack": f"/hall-{(host + 1) // 2}/r{host}"}}
        for host in (1, 2, 3)
        for number in ("", "-2")
    },
}
#: What is typed, and what must be seen then.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("status",), ("6 of 6 workers alive on 3 hosts", "leader", "follower", "all is well")),
    "top": (("top", "--once"), ("6 workers on 3 hosts", "/hall-2/r3", "█", "nightly-orders/1", "open", "committed")),
    "shuffles-show": (
        ("shuffles", "show", "nightly-orders/0"),
        ("200 partitions, 8 maps", "400 in all: 400 readable", "skew, largest to median", "█", "w3-2"),
    ),
    "drill": (
        ("drill", "push", "--copies", "2", "--count", "3"),
        ("3 of 3 rounds", "every record read once", "good: nothing was forgotten"),
    ),
}
NOTEBOOK = (
    """import contextlib
import holdfast

stack = contextlib.ExitStack()
cluster = stack.enter_context(holdfast.local_cluster(masters=3, workers=2))
cluster""",
    'session = stack.enter_context(holdfast.connect(cluster.endpoints, app="nightly report"))\nsession',
    "shuffle = session.register_reduce_shuffle(partitions=100, maps=8, replication=2)\nshuffle",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A job: a shuffle of uneven partitions is committed and read again and again, and maps push to another one."""
    root = tmp_path_factory.mktemp("job")
    directory = {"path": f"{root}/{{name}}", "capacity": "256MiB"}
    settings: dict[str, Any] = {
        "lease": {"worker": "1m", "heartbeat": "1s"},
        "worker": {"directories": [directory]},
        **CALM,
    }
    with (
        local_cluster(masters=3, dir=root / "c", settings=settings, **MACHINES) as started,
        Session(started.endpoints, app="nightly-orders", user="etl") as session,
    ):
        committed = _committed(session)
        written = session.register_reduce_shuffle(partitions=PARTITIONS, maps=40, replication=2)
        with _traffic(committed, written) as filled:
            look = partial(typed, ("top", "--once"), started.endpoints)
            wait_until(lambda: "█" in look(), "so much on a disk that its use can be seen", 240)
            filled.set()
            yield started


def _committed(session: Session) -> ReduceShuffle:
    """A shuffle whose largest partition is many times the median."""
    drawn_sizes = random.Random(28)
    sizes = [int(2 ** drawn_sizes.gauss(16, 1.2)) for _ in range(PARTITIONS)]
    shuffle = session.register_reduce_shuffle(partitions=PARTITIONS, maps=MAPS, replication=2)
    statuses = []
    for number in range(MAPS):
        with shuffle.writer(number) as writer:
            for partition, size in enumerate(sizes):
                writer.write(partition, bytes(size // MAPS))
            statuses.append(writer.close())
    shuffle.commit(statuses)
    return shuffle


@contextmanager
def _traffic(committed: ReduceShuffle, written: ReduceShuffle) -> Iterator[threading.Event]:
    """Push and fetch, as long as the event is not set without a pause; up to what the directories hold."""
    filled, ended = threading.Event(), threading.Event()

    def push() -> None:
        with written.writer(0) as writer:
            for turn in range(1_000):
                if ended.wait(0.2 if filled.is_set() else 0.0):
                    return
                for partition in range(turn % 4, PARTITIONS, 4):
                    writer.write(partition, bytes(7_000))
                writer.flush()
                for _ in committed.reader(range(turn % 20, PARTITIONS, 20)):
                    pass

    thread = threading.Thread(target=push)
    thread.start()
    try:
        yield filled
    finally:
        ended.set()
        thread.join()


def check_text(shown: str, wanted: Sequence[str]) -> None:
    """All that must be seen is there, however it is broken into lines."""
    seen = " ".join(shown.split())
    assert [each for each in wanted if each not in seen] == [], shown


def check_terminal(svg: str, wanted: Sequence[str], lines: int) -> None:
    """Everything wanted is in the picture, no line was broken, and it is small and needs nobody else."""
    found = lines_of(svg)
    check_text("\n".join(found), wanted)
    assert len(found) == lines
    assert max(map(len, found)) <= COLUMNS
    assert "url(http" not in svg
    assert len(svg.encode()) < SVG_BYTES_MAX


def check_photograph(seen: Seen, wanted: Sequence[str]) -> None:
    """Everything wanted is on the page, which complains of nothing; the photograph is not blank, and small."""
    check_text(seen.text, wanted)
    assert (seen.complaints, seen.wide) == ([], [])
    assert picture_of(seen.photograph)[2] > 100
    assert len(seen.photograph) < PICTURE_BYTES_MAX


@pytest.mark.timeout(900)  # a drill on a busy machine
def test_a_terminal(cluster: LocalCluster, tmp_path: Path) -> None:
    """Commands show a cluster with work in it, and Chromium shows all of their pictures."""
    kept = photographs_of(tmp_path)

    async def run() -> None:
        async with browser() as chrome:
            for name, (words, wanted) in COMMANDS.items():
                shown = await asyncio.to_thread(typed, words, cluster.endpoints)
                svg = drawn(words, shown)
                check_terminal(svg, wanted, 1 + sum(1 for line in shown.splitlines() if line.strip()))
                page = tmp_path / f"{name}.html"
                page.write_text(f"<!doctype html><meta charset=utf-8><body style='margin:0'>{svg}")
                seen = await chrome.look(page.as_uri(), 1280, 800, whole=True)
                assert (seen.complaints, seen.wide) == ([], [])
                (tmp_path / f"{name}.png").write_bytes(seen.photograph)
                (kept / f"{name}.svg").write_text(svg)

    asyncio.run(run())


def test_the_page_of_a_shuffle(cluster: LocalCluster, tmp_path: Path) -> None:
    """Sizes, copies and hosts of a shuffle with uneven partitions."""
    with Session(cluster.endpoints, app="nightly-orders", attach=True) as session:
        instance = session.instance.hex()
    wanted = ("nightly-orders/0", "committed", "200", "bytes of one of the partitions", "h3", "w3-2")

    async def run() -> None:
        url = f"http://{cluster.leader().address}/shuffles/{instance}/0/0?refresh=off"
        async with browser() as chrome:
            seen = await chrome.look(url, 1280, 800, whole=True)
            check_photograph(seen, wanted)
            on_phone = await chrome.look(url, 390, 844, dark=True, whole=True)
            check_photograph(on_phone, wanted)
            (tmp_path / "shuffle-phone-dark.png").write_bytes(on_phone.photograph)
            photographs_of(tmp_path).joinpath("shuffle.png").write_bytes(seen.photograph)

    asyncio.run(run())


def test_the_status_page(tmp_path: Path) -> None:
    """A day's work on three racks, light and dark."""
    wanted = ("all well", "8 of 8", "/hall-1/r1", "w08", "customers-by-region", "9 open, 7 committed", "MiB/s")

    async def run() -> None:
        with local_cluster(masters=3, workers=0, dir=tmp_path / "c", settings={**SETTINGS, **CALM}) as cluster:
            async with ControlClient(cluster.endpoints) as client, browser() as chrome:
                world = await busy(client, 60.0, ad_hoc="customers-by-region")

                async def photographs() -> None:
                    for name, dark in (("page", False), ("page-dark", True)):
                        seen = await chrome.look(f"http://{cluster.leader().address}/", 1280, 980, dark=dark)
                        check_photograph(seen, wanted)
                        photographs_of(tmp_path).joinpath(f"{name}.png").write_bytes(seen.photograph)

                await with_beats(world, photographs())

    asyncio.run(run())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_notebook(dark: bool, tmp_path: Path) -> None:
    """Cluster, session and shuffle are tables, in Jupyter's own styles."""
    from tests.page.notebook import shown  # of this environment alone

    page = tmp_path / "notebook.html"
    page.write_text(shown(NOTEBOOK, "stack.close()", dark=dark))

    async def run() -> Seen:
        async with browser() as chrome:
            return await chrome.look(page.as_uri(), 900, 600, dark=dark, whole=True, scripts=False)

    seen = asyncio.run(run())
    check_photograph(seen, ("LocalCluster 127.0.0.1:", "running", "Session nightly report", "open", "ReduceShuffle"))
    kept = tmp_path if dark else photographs_of(tmp_path)  # the documentation shows one of the two
    (kept / "notebook.png").write_bytes(seen.photograph)


def test_a_picture_without_what_it_must_show_is_found() -> None:
    """The checks can fail: a line that is not there, and one that is broken since it is too long."""
    words, shown = ("status",), f"\N{ESCAPE}[1mall\N{ESCAPE}[0m is well\n{'x' * COLUMNS}\n"
    check_terminal(drawn(words, shown), ("$ holdfast status", "all is well"), 3)
    with pytest.raises(AssertionError):
        check_terminal(drawn(words, shown), ("1 worker lost",), 3)
    with pytest.raises(AssertionError):
        check_terminal(drawn(words, f"{shown}{'x' * COLUMNS}x"), ("all is well",), 4)
