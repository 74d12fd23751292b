"""Credit, turns and bounds of streams."""

import random
from typing import Any

import pytest

from holdfast.common.errors import GiveUpError, HoldfastError, RetryError, UnknownStreamError
from holdfast.common.ids import Incarnation
from holdfast.common.limits import READ_FRAME_BYTES, STREAM_CREDIT_BYTES_MAX
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.read import streams as module
from holdfast.worker.core.read.streams import IDLE_NS_MAX, Streams, Turn


@pytest.fixture
def streams():
    """Streams of incarnation 5; checked when the test is over."""
    made: Streams[Any] = Streams(Incarnation(5))
    yield made
    made.check()


def test_a_stream_id_holds_the_incarnation(streams: Streams[Any]) -> None:
    """Upper half incarnation, lower half a counter."""
    assert [streams.open(1, 0), streams.open(1, 0)] == [5 << 32 | 1, 5 << 32 | 2]


def test_nothing_is_sent_without_credit(streams: Streams[Any]) -> None:
    """A stream gets turns for exactly the credit given, a frame at a time."""
    stream = streams.open(1, 0)
    assert streams.turn(1) is None
    assert streams.credit(1, stream, READ_FRAME_BYTES + 10)
    assert streams.turn(1) == Turn(stream, READ_FRAME_BYTES)
    streams.sent(stream, READ_FRAME_BYTES)
    assert streams.turn(1) == Turn(stream, 10)
    streams.sent(stream, 10)
    assert streams.turn(1) is None


def test_what_the_streams_of_a_connection_read_is_bounded(
    streams: Streams[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the bound a stream is BUSY until another one is closed; one too long by itself is TOO_LARGE."""
    monkeypatch.setattr(module, "ROWS_PER_CONNECTION_MAX", 10)
    first = streams.open(1, 0, 6)
    with pytest.raises(RetryError) as busy:
        streams.open(1, 0, 5)
    assert busy.value.status is Status.BUSY
    streams.open(2, 0, 5)
    streams.close(1, first)
    streams.open(1, 0, 10)
    streams.lost(1)
    streams.open(1, 0, 10)
    with pytest.raises(GiveUpError) as alone:
        module.check_rows(11, 3)
    assert alone.value.status is Status.TOO_LARGE


def test_streams_of_a_connection_take_turns(streams: Streams[Any]) -> None:
    """No stream sends a second frame before every other one with credit has sent one."""
    ids = [streams.open(1, 100) for _ in range(3)]
    order = []
    for _ in range(6):
        turn = streams.turn(1)
        assert turn is not None
        order.append(turn.stream)
        streams.sent(turn.stream, 10)
        streams.check()
    assert order == ids * 2


def test_connections_do_not_see_each_other(streams: Streams[Any]) -> None:
    """Turns, credit and close go by connection."""
    mine, theirs = streams.open(1, 10), streams.open(2, 10)
    assert streams.turn(2) == Turn(theirs, 10)
    with pytest.raises(UnknownStreamError):
        streams.credit(2, mine, 1)
    assert not streams.close(2, mine)
    assert streams.lost(1) == [mine]
    assert len(streams) == 1


def test_a_stream_of_another_incarnation_is_unknown_at_once(streams: Streams[Any]) -> None:
    """A restarted worker says UNKNOWN_STREAM for ids of its earlier life, whatever the counter."""
    stream = streams.open(1, 0)
    with pytest.raises(UnknownStreamError, match="another incarnation"):
        streams.credit(1, (4 << 32) | (stream & 0xFFFF_FFFF), 1)


def test_a_new_incarnation_forgets_all(streams: Streams[Any]) -> None:
    """After begin() no old stream exists and new ids are of the new incarnation."""
    old = streams.open(1, 10)
    assert streams.begin(Incarnation(6)) == [old]
    assert streams.turn(1) is None
    assert streams.open(1, 0) >> 32 == 6


def test_too_much_credit_is_refused_and_changes_nothing(streams: Streams[Any]) -> None:
    """Outstanding credit is bounded at open and later."""
    with pytest.raises(HoldfastError) as caught:
        streams.open(1, STREAM_CREDIT_BYTES_MAX + 1)
    assert caught.value.status == Status.BAD_REQUEST
    stream = streams.open(1, STREAM_CREDIT_BYTES_MAX)
    with pytest.raises(HoldfastError):
        streams.credit(1, stream, 1)
    assert streams.turn(1) == Turn(stream, READ_FRAME_BYTES)


def test_closing_in_the_middle_leaves_the_others_their_turns(streams: Streams[Any]) -> None:
    """A closed stream is skipped."""
    first, second, third = (streams.open(1, 10) for _ in range(3))
    assert streams.close(1, second)
    assert not streams.close(1, second)
    streams.sent(first, 10)
    assert streams.turn(1) == Turn(third, 10)


def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch, streams: Streams[Any]) -> None:
    """Per connection and in all; a closed one makes room."""
    monkeypatch.setattr(module, "STREAMS_PER_CONNECTION_MAX", 2)
    streams.shares.most = 3
    first = streams.open(1, 0)
    streams.open(1, 0)
    with pytest.raises(RetryError):
        streams.open(1, 0)
    streams.open(2, 0)
    with pytest.raises(RetryError):
        streams.open(3, 0)
    streams.close(1, first)
    streams.open(3, 0)


def test_an_application_leaves_streams_and_plans_to_others() -> None:
    """Whoever has most of either is BUSY, and another application is not; what is closed is given back."""
    streams: Streams[Any] = Streams(Incarnation(1), shares=Shares(10), plans=Shares(1_000))
    mine = [streams.open(number, 0, 100, owner=b"mine", own=True) for number in range(8)]
    with pytest.raises(RetryError):
        streams.open(9, 0, owner=b"mine")
    theirs = streams.open(9, 0, 100, owner=b"theirs", own=True)
    with pytest.raises(RetryError):
        streams.grow(9, theirs, 61)
    streams.grow(9, theirs, 50)
    streams.check()
    streams.lost(0)
    streams.close(1, mine[1])
    streams.grow(9, theirs, 60)
    streams.check()
    streams.begin(Incarnation(2))
    assert (streams.shares.total, streams.plans.total) == (0, 0)


def test_an_idle_stream_expires_and_a_busy_one_does_not(streams: Streams[Any]) -> None:
    """Only a stream without credit given or bytes sent for the whole time is late."""
    idle, busy = streams.open(1, 0), streams.open(1, 0)
    assert streams.tick(0) == []
    streams.credit(1, busy, 5)
    assert streams.tick(IDLE_NS_MAX - 1) == []
    assert streams.tick(IDLE_NS_MAX) == [(1, idle)]


def test_streams_with_credit_are_ready(streams: Streams[Any]) -> None:
    """Those of the connection, until they have used it up; credit makes them ready again."""
    mine, _ = streams.open(1, 100), streams.open(1, 100)
    streams.open(2, 100)
    assert streams.ready(1) == 2
    streams.sent(mine, 100)
    assert streams.ready(1) == 1
    streams.credit(1, mine, 5)
    assert (streams.ready(1), streams.ready(2), streams.ready(3)) == (2, 1, 0)


@pytest.mark.parametrize("seed", range(10))
def test_random_use_never_sends_more_than_the_credit(seed: int) -> None:
    """Sum of sent bytes never exceeds sum of credit, per stream; invariants hold throughout."""
    chance = random.Random(seed)
    streams: Streams[Any] = Streams(Incarnation(1))
    credit: dict[int, int] = {}
    owner: dict[int, int] = {}
    for _ in range(500):
        connection = chance.randrange(3)
        mine = [stream for stream, whose in owner.items() if whose == connection]
        match chance.randrange(5):
            case 0:
                given = chance.choice([0, 1_000])
                stream = streams.open(connection, given)
                credit[stream], owner[stream] = given, connection
            case 1 if mine:
                stream = chance.choice(mine)
                streams.credit(connection, stream, 500)
                credit[stream] += 500
            case 2 | 3:
                turn = streams.turn(connection)
                if turn is not None:
                    size = chance.randint(1, turn.allowance)
                    streams.sent(turn.stream, size)
                    credit[turn.stream] -= size
                    assert credit[turn.stream] >= 0
            case 4 if mine and chance.random() < 0.3:
                gone = streams.lost(connection)
                assert gone == sorted(mine)
                for stream in gone:
                    del owner[stream]
        streams.check()
