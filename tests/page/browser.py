"""A headless Chromium, spoken to by its DevTools protocol: opens a page at a size, and tells what is wrong with it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import wait_until_async

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0"),
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str:
    """The program; HOLDFAST_TEST_CHROMIUM names it where it is elsewhere."""
    found = os.environ.get("HOLDFAST_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    assert found, "no Chromium here: apt-get install --no-install-recommends chromium fonts-dejavu-core"
    return found


@dataclass
class Seen:
    """What a page was like."""

    html: str
    text: str
    #: messages of the console, errors of scripts, refusals by the policy, and requests that failed
    complaints: list[str]
    scroll_width: int
    width: int
    photograph: bytes
    #: elements that stick out to the right, of the window or of what they are in
    wide: list[str] = field(default_factory=list)
    #: milliseconds from the request to the last byte, and to the end of loading
    answered_ms: float = 0.0
    loaded_ms: float = 0.0


class Browser:
    """One Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: list[dict[str, Any]] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            reported = message.json()
            waiting = self._answers.pop(reported.get("id", 0), None)
            if waiting is None:
                self._events.append(reported)
            elif not waiting.done():
                waiting.set_result(reported)

    async def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        reported: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            reported["sessionId"] = session
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(reported)
        answer = await asyncio.wait_for(self._answers[number], 30)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    @asynccontextmanager
    async def tab(
        self, url: str, width: int, height: int, *, dark: bool = False, scripts: bool = True
    ) -> AsyncIterator[Tab]:
        """Open a page in a tab of its own, which is closed in the end."""
        target = (await self.ask("Target.createTarget", url="about:blank"))["targetId"]
        tab = (await self.ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable", tab)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.ask("Emulation.setDeviceMetricsOverride", tab, **size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.ask("Emulation.setEmulatedMedia", tab, features=scheme)
        self._events.clear()
        if not scripts:
            await self.ask("Emulation.setScriptExecutionDisabled", tab, value=True)
        await self.ask("Page.navigate", tab, url=url)
        await wait_until_async(lambda: any(each["method"] == "Page.loadEventFired" for each in self._events), url)

        yield Tab(self, tab)
        await self.ask("Target.closeTarget", targetId=target)

    def complaints(self) -> list[str]:
        """What was wrong since the last tab was opened."""
        return list(filter(None, map(_complaint, self._events)))

    async def look(
        self, url: str, width: int, height: int, *, dark: bool = False, whole: bool = False, scripts: bool = True
    ) -> Seen:
        """Open a page, and tell what it was like; `whole` photographs all of it, not only what the window shows."""
        async with self.tab(url, width, height, dark=dark, scripts=scripts) as tab:
            value = tab.value
            shot = await self.ask("Page.captureScreenshot", tab.session, format="png", captureBeyondViewport=whole)
            return Seen(
                html=await value("document.documentElement.outerHTML"),
                text=await value("document.body.innerText"),
                complaints=self.complaints(),
                scroll_width=await value("document.documentElement.scrollWidth"),
                width=await value("innerWidth"),
                photograph=base64.b64decode(shot["data"]),
                wide=await value(
                    "(() => { const right = e => e.getBoundingClientRect().right;"
                    "return [...document.querySelectorAll('body *')]"
                    f".filter(e => right(e) > Math.min({width}, right(e.parentElement)) + 1)"
                    ".slice(0, 5).map(e => e.outerHTML.slice(0, 120)) })()"
                ),
                answered_ms=await value("performance.getEntriesByType('navigation')[0].responseEnd"),
                loaded_ms=await value("performance.getEntriesByType('navigation')[0].loadEventStart"),
            )

    async def close(self) -> None:
        """End it."""
        with suppress(AssertionError, TimeoutError, ConnectionError):
            await self.ask("Browser.close")
        self._reading.cancel()


@dataclass(frozen=True)
class Tab:
    """One page that is open."""

    browser: Browser
    session: str

    async def value(self, expression: str) -> Any:
        """What a piece of script comes to."""
        answer = await self.browser.ask(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition: str) -> None:
        """Return once this piece of script is true."""
        look = f"const look = () => ({condition}) ? done(true) : setTimeout(look, 50); look(); setTimeout(done, 9000)"
        for _ in range(20):
            if await self.value(f"new Promise(done => {{ {look} }})"):
                return
        raise AssertionError(f"waited in vain for {condition}")


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start a Chromium with a fresh profile."""
    with tempfile.TemporaryDirectory(prefix="holdfast-chromium-") as directory, _chromium(Path(directory)):
        port_file = Path(directory) / "DevToolsActivePort"
        await wait_until_async(lambda: port_file.is_file() and port_file.read_text().count("\n"), "Chromium")
        port, path = port_file.read_text().split()
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=1 << 27) as socket,
        ):
            started = Browser(socket)
            try:
                yield started
            finally:
                await started.close()


@contextmanager
def _chromium(profile: Path) -> Iterator[None]:
    """The process, ended at the end."""
    quiet = subprocess.DEVNULL
    command = [chromium(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    child = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _complaint(event: dict[str, Any]) -> str:
    """What an event says is wrong; "" if it says nothing."""
    reported = event["params"]
    match event["method"]:
        case "Log.entryAdded":
            return f"log: {reported['entry']['text']}"
        case "Runtime.consoleAPICalled":
            return f"console: {reported['args']}"
        case "Runtime.exceptionThrown":
            return f"exception: {reported['exceptionDetails']['text']}"
        case "Network.loadingFailed":
            return f"loading: {reported['errorText']}"
    return ""


def picture_of(png: bytes) -> tuple[int, int, int]:
    """Width, height, and how many different lines of pixels a photograph has: a blank one has one or two."""
    assert png.startswith(b"\x89PNG")
    width, height, depth, colour = struct.unpack_from(">IIBB", png, 16)
    at, packed = 8, b""
    while at < len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"IDAT":
            packed += png[at + 8 : at + 8 + size]
        at += 12 + size
    line = 1 + width * {2: 3, 6: 4}[colour] * depth // 8
    raw = zlib.decompress(packed)
    return width, height, len({raw[start : start + line] for start in range(0, len(raw), line)})
