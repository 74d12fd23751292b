"""Raft messages: golden bytes, and nothing malformed gets through."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.master.raft import codec
from holdfast.master.raft.codec import (
    Append,
    AppendAnswer,
    Message,
    PreVote,
    PreVoteGranted,
    RequestVote,
    SnapshotPart,
    TimeoutNow,
    Vote,
)
from holdfast.master.raft.errors import WireError

GOLDEN = Path(__file__).parents[1] / "golden"
MESSAGES: dict[str, Message] = {
    "request_vote": RequestVote(term=7, last_index=258, last_term=6),
    "vote": Vote(term=7),
    "append": Append(7, 1001, 256, 257, 6, ((b"\x00\x01register", 258, 6), (codec.NO_OP, 259, 7))),
    "heartbeat": Append(7, 1002, 259, 259, 7, ()),
    "snapshot_part": SnapshotPart(7, 1003, 250, 5, 70_000, 65_536, b"piece of a snapshot"),
    "answer": AppendAnswer(7, 1001, 260, reset=False, success=True),
    "timeout_now": TimeoutNow(term=7),
    "pre_vote": PreVote(number=3, last_index=258, last_term=6),
    "pre_vote_granted": PreVoteGranted(number=3, term=7),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_golden_bytes(name: str) -> None:
    """The bytes of each message are those on record, and read back as the message."""
    recorded = bytes.fromhex((GOLDEN / f"raft_{name}.hex").read_text())
    assert codec.encode(MESSAGES[name]) == recorded
    assert codec.decode(recorded) == MESSAGES[name]


def test_mutated_messages_are_refused_or_whole() -> None:
    """20,000 damaged messages: each raises WireError or decodes to a message that encodes to the same bytes."""
    rng = random.Random(1)
    payloads = [codec.encode(message) for message in MESSAGES.values()]
    refused = 0
    for _ in range(20_000):
        payload = bytearray(rng.choice(payloads))
        for _ in range(rng.randint(1, 3)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        damaged = bytes(payload[: rng.randint(0, len(payload))] if rng.random() < 0.3 else payload)
        try:
            message = codec.decode(damaged)
        except WireError:
            refused += 1
        else:
            assert codec.encode(message) == damaged
    assert refused > 5_000


def test_announced_lengths_are_checked_first() -> None:
    """A count or length far beyond the message is refused before anything is allocated for it."""
    payload = bytearray(codec.encode(MESSAGES["append"]))
    payload[42:46] = (0xFFFFFFFF).to_bytes(4, "little")
    with pytest.raises(WireError, match="announces 4294967295 entries"):
        codec.decode(bytes(payload))


@pytest.mark.parametrize("kind", [2, 3, 9])
def test_membership_and_version_entries_are_refused(kind: int) -> None:
    """Entries of the library's own kinds, which would be unpickled, never enter the log from the wire."""
    append = Append(7, 1, 1, 1, 0, ((bytes([kind]) + b"payload", 2, 7),))
    with pytest.raises(WireError, match=f"kind {kind}"):
        codec.decode(codec.encode(append))


def test_other_versions_are_named() -> None:
    """A message of another version is refused with both versions in the text."""
    with pytest.raises(WireError, match="version 2; this build has version 1"):
        codec.decode(b"\x02" + codec.encode(Vote(1))[1:])
