"""docs/internals/journey.md and docs/ARCHITECTURE.md name files and functions that exist."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from holdfast.common.formats.frame import FrameType as Frame
from holdfast.common.formats.messages import Role
from holdfast.common.formats.reduce_messages import ChunksOpen, PushCredit, Seal
from holdfast.common.limits import MIB
from holdfast.common.net.frames.connection import FrameConnection
from holdfast.worker.core.read.streams import Streams
from holdfast.worker.core.write.reduce import Reduce
from holdfast.worker.server.services.stream_service import StreamService
from holdfast.worker.storage.env.system_files import SystemFiles
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.tree import ROOT
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import INDEX, data_world

_JAVA = ROOT / "client/jvm/src/main/java/org/apache/spark/shuffle/holdfast"
_FILE = re.compile(r"`((?:common|master|worker|client|tools)/[\w./-]+|(?:\w+/)*\w+\.java)(?:::(\w+))?`")


def missing(text: str) -> list[str]:
    """What of the named files and functions is not there."""
    found = []
    for name, function in _FILE.findall(text):
        path = _JAVA / name if name.endswith(".java") and not (ROOT / name).exists() else ROOT / name
        if not path.exists():
            found.append(name)
        elif function and not has(path, function):
            found.append(f"{name}::{function}")
    return found


def has(path: Path, function: str) -> bool:
    """Whether the file has a function or class of that name."""
    if path.suffix == ".java":
        return re.search(rf"\b{function}\(", path.read_text("utf-8")) is not None
    return re.search(rf"^\s*(?:async )?(?:def|class) {function}\b", path.read_text("utf-8"), re.MULTILINE) is not None


@pytest.mark.parametrize("page", ["internals/journey.md", "ARCHITECTURE.md"])
def test_what_is_named_exists(page: str) -> None:
    """Each file and each `file::function` of the page is there."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert missing(text) == []


def test_what_does_not_exist_is_found() -> None:
    """A file that is gone and a function that was renamed are found, in both languages."""
    named = "`worker/core/none.py` `client/session.py::Session` `client/session.py::none` `push/Pusher.java::none`"
    assert missing(named) == ["worker/core/none.py", "client/session.py::none", "push/Pusher.java::none"]


def test_the_journey_names_functions() -> None:
    """The main path is followed function by function."""
    text = (ROOT / "docs" / "internals" / "journey.md").read_text("utf-8")
    assert sum(bool(function) for _, function in _FILE.findall(text)) > 30


class Walk:
    """The files whose functions are under way when something is called, from a function that begins it on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.files: dict[str, set[str]] = {}

    def look(self, where: Any, name: str, begin: Callable[..., Any]) -> None:
        """Look whenever a function is called while `begin` is under way."""
        original = getattr(where, name)
        code = getattr(original, "__code__", None)
        itself = {_place(code)} if code is not None else set[str]()

        def looked(*given: Any, **more: Any) -> Any:
            if name not in self.files and (files := _under_way(begin.__code__)):
                self.files[name] = (files | itself) - {""}
            return original(*given, **more)

        self._patch.setattr(where, name, looked)


def _place(code: CodeType) -> str:
    """The file of a function of ours; "" for others."""
    name = code.co_filename.rpartition(f"{ROOT / 'holdfast'}/")[2]
    return name if name.startswith(("common/", "worker/")) else ""


def _under_way(begin: CodeType) -> set[str]:
    """The files of ours whose functions are under way, up to `begin`; none if that is not."""
    frame: FrameType | None = sys._getframe(2)
    found: set[str] = set()
    while frame is not None:
        found.add(_place(frame.f_code))
        if frame.f_code is begin:
            return found
        frame = frame.f_back
    return set()


def listed(begin: str) -> list[str]:
    """The files that the journey names from these words on, up to the end of their sentence."""
    text = (ROOT / "docs" / "internals" / "journey.md").read_text("utf-8")
    return re.findall(r"`([\w/]+\.py)`", text[text.index(begin) :].partition("`.")[0] + "`")


class _Reader:
    size = 0

    def data(self, data: object, body: Any) -> None:
        if body is not None:
            self.size += len(body.view)
            body.release()

    def failed(self, error: Exception) -> None:
        raise error


def test_a_batch_walks_through_eight_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is pushed to a real worker and read again: the files whose functions call one another from the socket to
    the write, and from the read to the socket, with the cores that decide, are those that the journey lists, eight at
    most."""
    pushed, read = Walk(monkeypatch), Walk(monkeypatch)
    for where, name in ((Reduce, "decide"), (SystemFiles, "write_parts")):
        pushed.look(where, name, FrameConnection.buffer_updated)
    read.look(SystemFiles, "open", StreamService._open_chunks)
    read.look(Streams, "turn", StreamService._pump)
    read.look(os, "sendfile", StreamService.pump)
    shuffle, size = shuffle_of(), MIB // 2

    async def story() -> None:
        async with data_world(tmp_path) as world, world.client() as client, world.client(Role.MASTER) as master:
            await client.request(Frame.PUSH_CREDIT, PushCredit(MIB).encode())
            writer = Writer(shuffle)
            for data in (b"small", bytes(size)):
                made = writer.batch(0, data)
                await client.request(Frame.PUSH, *writer.push([made], world.standing.incarnation))
            seal = Seal(shuffle=shuffle, flags=0, raft_index=INDEX, epochs=[(0, 0)])
            await master.request(Frame.SEAL, seal.encode())
            reader = _Reader()
            await client.open_chunks(ChunksOpen(shuffle=shuffle, credit_bytes=MIB, files=[(0, 0, 0)]), reader)
            await wait_until_async(lambda: reader.size > size, "the batches")

    asyncio.run(asyncio.wait_for(story(), 60))
    to_disk, to_socket = set[str]().union(*pushed.files.values()), set[str]().union(*read.files.values())
    assert (set(pushed.files), set(read.files)) == ({"write_parts", "decide"}, {"open", "turn", "sendfile"})
    for begin, walked in (("From the socket to the disk", to_disk), ("From the disk to the socket", to_socket)):
        assert (set(listed(begin)), len(walked) <= 8) == (walked, True), begin
