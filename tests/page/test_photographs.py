"""The page as Chromium shows it: at three sizes, light and dark, of an empty, a busy and a degraded cluster, and of one
with several workers on each host.

`tox -e page` runs this and keeps the photographs; look at them after each change of the page.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.net.control import ControlClient
from holdfast.tools.benches.page import fill
from tests.page.browser import Browser, Seen, browser, picture_of
from tests.page.world import EVIL, HOSTS, SETTINGS, World, busy, degraded, hosts

pytestmark = pytest.mark.long

SIZES = {"phone": (390, 844), "laptop": (1280, 800), "wide": (1920, 1200)}
#: Photographs take both cores of a small machine for a while, and nobody is to be elected meanwhile.
CALM = {"raft": {"election_timeout_min": "4s", "election_timeout_max": "6s"}}
#: Where workers are lost; elsewhere heartbeats come from a story that ends, so that nobody may be.
LEASES = {"degraded": "10s", "hosts": "10s"}
Story = Callable[[LocalCluster, ControlClient], Awaitable[World | None]]


async def _empty(cluster: LocalCluster, client: ControlClient) -> World | None:
    return None


async def _busy(cluster: LocalCluster, client: ControlClient) -> World | None:
    return await busy(client, 16.0)


async def _degraded(cluster: LocalCluster, client: ControlClient) -> World | None:
    return await degraded(cluster, client)


async def _hosts(cluster: LocalCluster, client: ControlClient) -> World | None:
    await hosts(cluster, client)
    return None


async def _large(cluster: LocalCluster, client: ControlClient) -> World | None:
    await fill(client)
    return None


#: What each cluster must show, at every size.
STORIES: dict[str, tuple[Story, tuple[str, ...]]] = {
    "empty": (
        _empty,
        ("no worker has registered yet", "No worker has registered.", "No shuffle is registered.", "leader.elected"),
    ),
    "busy": (
        _busy,
        (
            "all well",
            "8 of 8",
            "/hall-1/r1",
            "w08",
            "nightly-orders",
            "16",
            "9 open, 7 committed",
            "MiB/s",
            "378.0 MiB",
        ),
    ),
    "degraded": (
        _degraded,
        (
            "1 worker lost: w03",
            "Input/output error",
            "is not connected",
            "did not answer within 10 s",
            "draining",
            "full",
            EVIL,
        ),
    ),
    "hosts": (
        _hosts,
        (
            "1 worker lost: w1-2",
            "2 of 3 alive",
            "3 of 3 alive",
            "3 draining",
            "tags nvme, spot",
            "its host goes away in 1 h",
            "not known yet whether ready in time",
            "are short of copies",
            "confined to the tag nvme",
            "2 copies of 3",
        ),
    ),
    "large": (
        _large,
        ("1,500 of 1,500", "workers 1–50 of 1,500", "shuffles 1–50 of 1,000", "/dc/r29", "application-19"),
    ),
}


def photographs_of(directory: Path) -> Path:
    """Where photographs are kept: where tox says, or below the test's directory."""
    kept = Path(os.environ.get("HOLDFAST_TEST_PHOTOGRAPHS", directory))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def keep(name: str, seen: Seen, directory: Path) -> None:
    """Keep a photograph."""
    (photographs_of(directory) / f"{name}.png").write_bytes(seen.photograph)


def check(seen: Seen, width: int, height: int) -> None:
    """Nothing complains, nothing sticks out, and there is something in the photograph."""
    assert seen.complaints == []
    assert seen.wide == []
    assert (seen.width, seen.scroll_width) == (width, width)
    shot_width, shot_height, lines = picture_of(seen.photograph)
    assert (shot_width, shot_height) == (width, height)
    assert lines > 100
    assert seen.html.count("<script") == 1, "the page's own"


async def with_beats(world: World | None, work: Awaitable[None]) -> None:
    """Do the work while workers go on sending heartbeats, all but the one that is to be lost."""
    task = asyncio.ensure_future(work)
    while not task.done():
        if world is not None:
            await world.beat(0.5, but="w03" if world.workers[1].problems else "")
        else:
            await asyncio.wait((task,), timeout=0.5)
    task.result()


@pytest.mark.parametrize("name", STORIES)
def test_the_page_is_whole_at_every_size(name: str, tmp_path: Path) -> None:
    """Numbers are in the text, the console is silent, nothing is wider than a phone, no photograph is blank; dark and
    without scripts it says the same."""
    story, wanted = STORIES[name]
    settings = {"lease": {"worker": LEASES.get(name, "2m"), "heartbeat": "1s"}, **CALM}
    machines = HOSTS if name == "hosts" else {"workers": 0}
    times = []

    async def photographs(chrome: Browser, address: str) -> None:
        url = f"http://{address}/"
        for size, (width, height) in SIZES.items():
            for dark in (False, True):
                seen = await chrome.look(url, width, height, dark=dark)
                keep(f"{name}-{size}{'-dark' if dark else ''}", seen, tmp_path)
                times.append(f"{name} {size}: answered {seen.answered_ms:.0f} ms, loaded {seen.loaded_ms:.0f} ms")
                check(seen, width, height)
                for reported in wanted:
                    assert reported in seen.text, reported
            whole = await chrome.look(f"{url}?refresh=off", width, height, whole=True, scripts=False)
            keep(f"{name}-{size}-whole", whole, tmp_path)
            assert (whole.complaints, whole.wide) == ([], [])
            assert all(reported in whole.text for reported in wanted)

    async def run() -> None:
        with local_cluster(masters=3, dir=tmp_path / "c", settings=settings, **machines) as cluster:
            async with ControlClient(cluster.endpoints) as client, browser() as chrome:
                world = await story(cluster, client)
                await with_beats(world, photographs(chrome, cluster.leader().address))
                if name == "busy":
                    follower = next(each for each in cluster.masters if each is not cluster.leader())
                    seen = await chrome.look(f"http://{follower.address}/", *SIZES["phone"])
                    keep("follower-phone", seen, tmp_path)
                    check(seen, *SIZES["phone"])

    asyncio.run(run())
    photographs_of(tmp_path).joinpath(f"{name}-times.txt").write_text("\n".join(times) + "\n")


def test_the_page_is_kept_fresh_in_place(tmp_path: Path) -> None:
    """What happens is on an open page within its interval, which is not loaded anew: what was opened stays open. It
    says when its master does not answer any more, and goes on when it is back."""

    async def run() -> None:
        settings = {**SETTINGS, **CALM}
        with local_cluster(1, dir=tmp_path / "c", settings=settings, hosts=1, workers_per_host=2) as cluster:
            async with ControlClient(cluster.endpoints) as client, browser() as chrome:
                (master,) = cluster.masters
                async with chrome.tab(f"http://{master.address}/", *SIZES["laptop"]) as tab:
                    await tab.until("document.querySelector('details.host') !== null")
                    await tab.value("window.loaded = true; document.querySelector('details.host').open = true")
                    await busy(client, 0.0)
                    await tab.until("document.body.innerText.includes('nightly-orders')")
                    assert await tab.value("window.loaded && document.querySelector('details.host').open")
                    assert chrome.complaints() == []
                    await asyncio.to_thread(master.kill)
                    await tab.until("document.body.classList.contains('old')")
                    await asyncio.to_thread(master.start)
                    await tab.until("!document.body.classList.contains('old')")
                    assert await tab.value("window.loaded")

    asyncio.run(run())


def test_what_is_wrong_with_a_page_is_found(tmp_path: Path) -> None:
    """The checks can fail: a script that the policy refuses, an error, something too wide, something that sticks out of
    what it is in, and a blank page."""
    pages = {
        "/refused": ("<p>x<script>1</script>", {"Content-Security-Policy": "default-src 'none'"}),
        "/error": ("<p>x<script>throw new Error('hurt')</script>", {}),
        "/wide": ("<div style='width:900px;height:9px'>wide</div>", {}),
        "/out": ("<div style='width:90px'><p style='width:190px'>out</p></div>", {}),
        "/blank": ("", {}),
    }

    async def serve(request: web.BaseRequest) -> web.Response:
        body, headers = pages.get(request.path, ("", {}))
        head = "<!doctype html><link rel=icon href='data:,'><meta name=viewport content='width=device-width'>"
        return web.Response(text=head + body, headers=headers, content_type="text/html")

    async def run() -> None:
        runner = web.ServerRunner(web.Server(serve))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with browser() as chrome:
                seen = {path: await chrome.look(f"http://127.0.0.1:{port}{path}", *SIZES["phone"]) for path in pages}
        finally:
            await runner.cleanup()
        assert "Content Security Policy" in "".join(seen["/refused"].complaints)
        assert seen["/error"].complaints
        assert seen["/wide"].wide
        assert seen["/wide"].scroll_width > SIZES["phone"][0]
        assert seen["/out"].wide
        assert seen["/out"].scroll_width == SIZES["phone"][0]
        assert picture_of(seen["/blank"].photograph)[2] <= 2

    asyncio.run(run())
