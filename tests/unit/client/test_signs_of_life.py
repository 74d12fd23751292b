"""What a stream brings while its worker waits for the DFS."""

import queue
from types import SimpleNamespace
from typing import Any

from holdfast.client.read.push_reader import _Stream
from holdfast.common.formats.reduce_messages import ChunksData


def test_a47_a_sign_of_life_is_no_data() -> None:
    """An empty frame ends the worker's silence, and says nothing else: neither that data came, nor what it was."""
    reader: Any = SimpleNamespace(events=queue.SimpleQueue())
    stream = _Stream(1, reader)
    before = stream.seen_ns
    stream.data(ChunksData(stream=1, sequence=0, file=0, chunk=0, flags=0), None)
    assert stream.seen_ns > before
    assert stream.first_ns == 0
    assert reader.events.empty()
    assert not stream._early
    assert not stream.over
