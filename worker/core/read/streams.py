"""Decides which stream sends next and how much: credit, fair turns, bounds, expiry.

Rules: a stream sends at most the credit that its reader gave; the streams of a connection take turns, a frame each;
memory is bounded for each connection, each user and application, and all (shares.py); a stream that neither sent nor
was given credit for a long time is forgotten. A stream id holds the incarnation in its upper half, so that a restarted
worker knows that it is none of its own. What a stream reads from is the edge's to know
(services/stream_sources.py): that is kept here, and closed with its stream. Called by services/stream_service.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.common.errors import GiveUpError, RetryError, UnknownStreamError
from holdfast.common.ids import Incarnation
from holdfast.common.limits import READ_FRAME_BYTES, STREAM_CREDIT_BYTES_MAX
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status

#: Streams of one connection, and of the whole worker.
STREAMS_PER_CONNECTION_MAX = 4_096
STREAMS_MAX = 65_536
#: Rows of the streams of one connection: epochs and chunks that they read, or parts of their plans. A row takes some
#: 240 bytes. What all hold of epochs and chunks, which streams share, is bounded in storage/read/sealed_locations.py.
ROWS_PER_CONNECTION_MAX = 262_144
#: Rows of all plans over MAP files, which each stream has for itself.
PLAN_ROWS_MAX = 524_288
#: A reader that does nothing for so long opens its stream again if it still lives.
IDLE_NS_MAX = 10 * 60 * 10**9

ConnectionId = int
StreamId = int


class StreamSource(Protocol):
    """What a stream reads from."""

    def close(self) -> None:
        """The stream has ended."""


S = TypeVar("S", bound=StreamSource)


class Turn(NamedTuple):
    """Stream `stream` may send one frame of at most `allowance` body bytes."""

    stream: StreamId
    allowance: int


@dataclass(slots=True)
class _Stream(Generic[S]):
    """One open stream."""

    connection: ConnectionId
    #: body bytes that may be sent
    credit: int
    #: credit given or bytes sent since the last tick that looked
    active: bool = True
    idle_since_ns: int | None = None
    #: what it takes in memory
    rows: int = 0
    #: whose it is, and what of the rows nobody shares
    owner: Hashable = ()
    own_rows: int = 0
    #: what it reads from, once that is known
    source: S | None = None


@dataclass(slots=True)
class _Connection:
    """One connection that has streams."""

    streams: set[StreamId] = field(default_factory=set)
    #: what they read
    rows: int = 0
    #: those that have credit, in the order of their turns
    turns: deque[StreamId] = field(default_factory=deque)


@dataclass(slots=True)
class Streams(Generic[S]):
    """All streams of this incarnation."""

    incarnation: Incarnation
    _streams: dict[StreamId, _Stream[S]] = field(default_factory=dict)
    _connections: dict[ConnectionId, _Connection] = field(default_factory=dict)
    _counter: int = 0
    #: streams, and rows of plans, of each owner
    shares: Shares = field(default_factory=lambda: Shares(STREAMS_MAX))
    plans: Shares = field(default_factory=lambda: Shares(PLAN_ROWS_MAX))

    def __len__(self) -> int:
        return len(self._streams)

    def begin(self, incarnation: Incarnation) -> list[StreamId]:
        """This worker has a new incarnation: forget every stream, return them."""
        forgotten = sorted(self._streams)
        for connection in list(self._connections):
            self.lost(connection)
        self.incarnation, self._counter = incarnation, 0
        return forgotten

    def open(
        self, connection: ConnectionId, credit: int, rows: int = 0, *, owner: Hashable = (), own: bool = False
    ) -> StreamId:
        """Return the id of a new stream of an owner that takes `rows`, of its `own` where no other stream shares
        them. Raises RetryError BUSY at a bound, GiveUpError for too much credit."""
        if credit > STREAM_CREDIT_BYTES_MAX:
            raise GiveUpError(_too_much(credit), status=Status.BAD_REQUEST)
        mine = self._connections.get(connection, _Connection())
        if len(mine.streams) >= STREAMS_PER_CONNECTION_MAX or not self.shares.fits(owner, 1):
            reason = (
                f"{STREAMS_PER_CONNECTION_MAX} streams on a connection, {STREAMS_MAX} in all and a share are allowed"
            )
            raise RetryError(reason, status=Status.BUSY)
        self._take_rows(mine, owner, rows, own=own)
        self.shares.take(owner, 1)
        self._connections[connection] = mine
        self._counter += 1
        stream = self.incarnation << 32 | self._counter
        own_rows = rows if own else 0
        self._streams[stream] = _Stream(connection, credit, rows=rows, owner=owner, own_rows=own_rows)
        mine.streams.add(stream)
        if credit:
            mine.turns.append(stream)
        return stream

    def grow(self, connection: ConnectionId, stream: StreamId, rows: int) -> None:
        """The plan of a stream takes `rows` more. Raises RetryError BUSY at a bound, UnknownStreamError."""
        found = self._streams.get(stream)
        if found is None:
            raise UnknownStreamError(f"stream {stream:#x} is open no more; open it again")
        self._take_rows(self._connections[connection], found.owner, rows, own=True)
        found.rows += rows
        found.own_rows += rows

    def begin_reading(self, stream: StreamId, source: S) -> None:
        """The stream reads from there, before its first turn."""
        self._streams[stream].source = source

    def source(self, stream: StreamId) -> S:
        found = self._streams[stream].source
        assert found is not None, "what has a turn reads from somewhere"
        return found

    def _take_rows(self, mine: _Connection, owner: Hashable, rows: int, *, own: bool) -> None:
        if mine.rows + rows > ROWS_PER_CONNECTION_MAX:
            held = f"the streams of this connection read {mine.rows} epochs, chunks or parts of files, and {rows} more"
            raise RetryError(f"{held} are too many: read or close some of them first", status=Status.BUSY)
        if own and not self.plans.take(owner, rows):
            raise RetryError(_NO_PLANS, status=Status.BUSY)
        mine.rows += rows

    def credit(self, connection: ConnectionId, stream: StreamId, size: int) -> bool:
        """Add credit; tell whether the stream had none, so that sending has to be started again.

        Raises UnknownStreamError for a stream that is not of this connection and incarnation, GiveUpError for too much.
        """
        found = self._streams.get(stream)
        if found is None or found.connection != connection:
            reason = "of another incarnation" if stream >> 32 != self.incarnation else "not open on this connection"
            raise UnknownStreamError(f"stream {stream:#x} is {reason}; open it again")
        if found.credit + size > STREAM_CREDIT_BYTES_MAX:
            raise GiveUpError(_too_much(found.credit + size), status=Status.BAD_REQUEST)
        had_none = found.credit == 0 and size > 0
        found.credit += size
        found.active = True
        if had_none:
            self._connections[connection].turns.append(stream)
        return had_none

    def turn(self, connection: ConnectionId) -> Turn | None:
        """Return whose turn it is on this connection and what it may send; `sent` or `close` must follow."""
        mine = self._connections.get(connection)
        if mine is None or not mine.turns:
            return None
        stream = mine.turns[0]
        return Turn(stream, min(self._streams[stream].credit, READ_FRAME_BYTES))

    def sent(self, stream: StreamId, size: int) -> None:
        """The stream whose turn it was has sent `size` body bytes, none where a chunk has nothing that is wanted; it
        queues up again while it has credit."""
        found = self._streams[stream]
        turns = self._connections[found.connection].turns
        assert turns[0] == stream, (turns[0], stream)
        assert 0 <= size <= found.credit, (size, found.credit)
        turns.popleft()
        found.credit -= size
        found.active = True
        if found.credit:
            turns.append(stream)

    def passed(self, stream: StreamId) -> None:
        """The stream whose turn it was has nothing to send yet: the others of its connection go first."""
        found = self._streams.get(stream)
        if found is not None:
            found.active = True
            turns = self._connections[found.connection].turns
            assert turns[0] == stream, "it was its turn"
            turns.rotate(-1)

    def close(self, connection: ConnectionId, stream: StreamId) -> bool:
        """Forget a stream (it ended, or its reader is done) and close its source; tell whether there was one."""
        found = self._streams.get(stream)
        if found is None or found.connection != connection:
            return False
        mine = self._connections[connection]
        mine.streams.discard(stream)
        mine.rows -= found.rows
        assert mine.rows >= 0, "each row is counted once"
        if found.credit:
            mine.turns.remove(stream)
        if not mine.streams:
            del self._connections[connection]
        self._leave(stream)
        return True

    def lost(self, connection: ConnectionId) -> list[StreamId]:
        """A connection is gone: forget its streams, return them."""
        forgotten = sorted(self._connections.pop(connection, _Connection()).streams)
        for stream in forgotten:
            self._leave(stream)
        return forgotten

    def _leave(self, stream: StreamId) -> None:
        found = self._streams.pop(stream)
        self.shares.give(found.owner, 1)
        self.plans.give(found.owner, found.own_rows)
        if found.source is not None:
            found.source.close()

    def ready(self, connection: ConnectionId) -> int:
        mine = self._connections.get(connection)
        return len(mine.turns) if mine is not None else 0

    def tick(self, now_ns: int) -> list[tuple[ConnectionId, StreamId]]:
        """Forget the streams that did nothing for IDLE_NS_MAX; return them."""
        late = []
        for stream, found in self._streams.items():
            if found.active or found.idle_since_ns is None:
                found.active, found.idle_since_ns = False, now_ns
            elif now_ns - found.idle_since_ns >= IDLE_NS_MAX:
                late.append((found.connection, stream))
        for connection, stream in late:
            self.close(connection, stream)
        return late

    def check(self) -> None:
        assert len(self._streams) <= STREAMS_MAX
        every = self._connections.values()
        assert sum(len(mine.streams) for mine in every) == len(self._streams)
        for connection, mine in self._connections.items():
            assert 0 < len(mine.streams) <= STREAMS_PER_CONNECTION_MAX
            assert mine.rows == sum(self._streams[stream].rows for stream in mine.streams) <= ROWS_PER_CONNECTION_MAX
            assert all(self._streams[stream].connection == connection for stream in mine.streams)
        self.shares.check()
        self.plans.check()
        assert self.shares.total == len(self._streams)
        assert self.plans.total == sum(stream.own_rows for stream in self._streams.values())
        for stream, found in self._streams.items():
            assert stream >> 32 == self.incarnation, stream
            assert 0 <= found.credit <= STREAM_CREDIT_BYTES_MAX, found
            queued = self._connections[found.connection].turns.count(stream)
            assert queued == (1 if found.credit else 0), (stream, queued, found.credit)
        assert sum(len(mine.turns) for mine in every) == sum(found.credit > 0 for found in self._streams.values())


def check_rows(rows: int, files: int) -> None:
    """Raise GiveUpError TOO_LARGE for a request that alone reads more than a connection may."""
    if rows > ROWS_PER_CONNECTION_MAX:
        reason = f"{files} files or epochs are more than one connection may read at a time: ask for half as many"
        raise GiveUpError(reason, status=Status.TOO_LARGE)


_NO_PLANS = (
    "the open streams of this user or application read most of the files that this worker has memory for; try later"
)


def _too_much(credit: int) -> str:
    return f"{credit} bytes of credit on a stream, at most {STREAM_CREDIT_BYTES_MAX} are allowed"
