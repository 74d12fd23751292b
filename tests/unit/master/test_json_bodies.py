"""Bodies in JSON: what they may hold, and that nobody waits while a long one is read."""

import asyncio
import json

import pytest

from holdfast.common.errors import ProtocolError
from holdfast.common.limits import REVIVE_EPOCHS_MAX
from holdfast.common.net.methods import METHODS
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.api.json_bodies import MARKS_MAX, JsonBodies

CHECK = METHODS["Registry/CheckShuffles"]
COMMIT = METHODS["Shuffles/Commit"]
REVIVE = METHODS["Shuffles/Revive"]


def of_keys(count: int) -> bytes:
    """A body with so many empty keys."""
    return b'{"keys":[' + b",".join([b"{}"] * count) + b"]}"


@pytest.mark.parametrize(
    "body", [of_keys(MARKS_MAX), b'{"keys":"' + b"\\n" * (MARKS_MAX + 1) + b'"}', b"[" * 1_000_000]
)
def test_many_small_values_are_refused_before_they_are_read(body: bytes) -> None:
    """Millions of objects, escapes or lists: TOO_LARGE, with what to do."""
    with pytest.raises(ProtocolError, match="application/proto") as refused:
        asyncio.run(JsonBodies().read(CHECK, body, "user"))
    assert refused.value.status is Status.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (rb'{"application":"\ud800"}', "surrogate"),
        (rb'{"\uDFFF":1}', "surrogate"),
        (b'{"application":"\xed\xa0\x80"}', "utf-8"),
        (b'{"kind":Infinity}', "Infinity is no number"),
        (b'{"kind":NaN}', "NaN is no number"),
        (b'{"kind":-1e400}', "too large"),
        (b'{"kind":' + b"9" * 5_000 + b"}", "digits"),
        (b'{"kind":' + b"[" * 50_000, "nested too deeply"),
        (b'{"kind":' + b'{"a":' * 50_000, "nested too deeply"),
    ],
)
def test_what_is_no_text_or_number_is_refused(body: bytes, sentence: str) -> None:
    """BAD_REQUEST with what is wrong; halves of characters and infinities ended in a traceback and status 500."""
    with pytest.raises(ProtocolError, match=sentence) as refused:
        asyncio.run(JsonBodies().read(METHODS["Shuffles/RegisterShuffle"], body, "user"))
    assert refused.value.status is Status.BAD_REQUEST
    str(refused.value).encode()


def test_whole_pairs_are_text() -> None:
    """Both halves, escaped, are one character, as is what only looks like a half."""
    body = rb'{"name":"\ud83d\ude00 \\ud800"}'
    request = asyncio.run(JsonBodies().read(METHODS["Shuffles/RegisterApplication"], body, "user"))
    assert isinstance(request, pb.RegisterApplicationRequest)
    assert request.name == "😀 \\ud800"


def test_what_clients_send_is_read() -> None:
    """The longest Revive, and winners of many MiB, which are one text."""

    async def story() -> None:
        bodies = JsonBodies()
        failed = [{"partition": each, "epoch": 12_345, "status": 123} for each in range(REVIVE_EPOCHS_MAX)]
        body = json.dumps({"key": {"shuffle": 1}, "failed": failed}).encode()
        assert len(body) < REVIVE.request_bytes_max
        revive = await bodies.read(REVIVE, body, "user")
        assert isinstance(revive, pb.ReviveRequest)
        assert len(revive.failed) == REVIVE_EPOCHS_MAX
        commit = await bodies.read(COMMIT, b'{"winnersArray":"' + b"AAAA" * (3 << 20) + b'"}', "user")
        assert isinstance(commit, pb.CommitRequest)
        assert commit.winners_array == bytes(9 << 20)

    asyncio.run(story())


def test_the_loop_turns_while_a_long_body_is_read() -> None:
    """Reading is done beside the loop."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        read = loop.create_task(JsonBodies().read(CHECK, of_keys(20_000), "user"))
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if not read.done():
                loop.call_later(0.001, turn)

        turn()
        request = await read
        assert isinstance(request, pb.CheckShufflesRequest)
        assert len(request.keys) == 20_000
        assert turns > 3

    asyncio.run(story())
