"""Puts the batches of a stream together again from frames that cut them anywhere.

Rules: what comes is copied once, into memory of its own, and the frame's body can be given back at once, so readers
that are paused hold nothing of the shared pool. Only lengths are looked at here, bounded; checksums are the
reader's. At most one unfinished batch is kept. Called by reader.py, on the loop.
"""

from __future__ import annotations

from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import HEADER, HEADER_BYTES, LAST, TOTALS, whole_batch_bytes

#: What a run belongs to: (file, region, partition).
Place = tuple[int, int, int]


class Assembler:
    """The unfinished batch of one stream."""

    __slots__ = ("_batch", "_filled", "_head", "_place")

    #: payloads begin at multiples of this, so that Arrow can use them where they are
    ALIGNMENT = 8

    def __init__(self) -> None:
        self._place: Place = (-1, -1, -1)
        #: an unfinished header
        self._head = b""
        #: an unfinished batch whose header is known
        self._batch: memoryview | None = None
        self._filled = 0

    def feed(self, place: Place, run: memoryview) -> list[bytes | memoryview]:
        """Take the next bytes of `place`; return buffers of whole batches, in order.

        Raises CorruptError for what cannot be a batch, and if the last place was left in the middle of one.
        """
        if place != self._place:
            self.end()
            self._place = place
        whole: list[bytes | memoryview] = []
        at = self._finish_batch(run, whole)
        start = at
        while at < len(run):
            size = whole_batch_bytes(run, at)
            if size is None or at + size > len(run):
                break
            at += size
        if at > start:
            whole.append(bytes(run[start:at]))
        if at < len(run):
            self._begin(run[at:])
        return whole

    def end(self) -> None:
        """Nothing more comes of this place; raises CorruptError if a batch is unfinished."""
        if self._head or self._batch is not None:
            raise CorruptError("the last batch is cut")

    def _finish_batch(self, run: memoryview, whole: list[bytes | memoryview]) -> int:
        """Fill the unfinished batch from the start of the run; return how much of the run was used."""
        at = 0
        if self._head:
            at = min(HEADER_BYTES - len(self._head), len(run))
            head, self._head = self._head + bytes(run[:at]), b""
            self._begin(memoryview(head))
        if self._batch is None:
            return at
        count = min(len(self._batch) - self._filled, len(run) - at)
        self._batch[self._filled : self._filled + count] = run[at : at + count]
        self._filled += count
        if self._filled == len(self._batch):
            whole.append(self._batch)
            self._batch = None
        return at + count

    def _begin(self, rest: memoryview) -> None:
        """Keep the beginning of a batch."""
        size = whole_batch_bytes(rest, 0)
        if size is None:
            self._head = bytes(rest)
            return
        _, _, flags, *_ = HEADER.unpack_from(rest)
        before_payload = HEADER_BYTES + (TOTALS.size if flags & LAST else 0)
        pad = -before_payload % self.ALIGNMENT
        self._batch = memoryview(bytearray(pad + size))[pad:]
        self._batch[: len(rest)] = rest
        self._filled = len(rest)
