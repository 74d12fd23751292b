"""Who may talk to a master, and what becomes of altered or repeated messages."""

from __future__ import annotations

import pytest

from holdfast.master.raft.errors import PeerRefused, WireError
from holdfast.master.raft.handshake import NONCE_BYTES, Acceptor, Identity, Initiator

SECRET = b"the masters' secret"
ONE, TWO = bytes(range(NONCE_BYTES)), bytes(range(100, 100 + NONCE_BYTES))


LEFT, RIGHT = Identity("m2", "c1", SECRET), Identity("m1", "c1", SECRET)


def meet(initiator: Identity = LEFT, acceptor: Identity = RIGHT, to: str = "m1") -> tuple[Initiator, Acceptor]:
    """Run a handshake to its end or to the refusal."""
    left = Initiator(initiator, to, ONE)
    right = Acceptor(acceptor, {"m2": "", "m3": ""}, TWO)
    frame: bytes | None = left.hello()
    while frame is not None:
        answer = right.feed(frame)
        frame = left.feed(answer) if answer is not None else None
    return left, right


def test_both_sides_agree() -> None:
    """After the handshake messages pass both ways."""
    left, right = meet()
    assert right.peer == "m2"
    assert left.session
    assert right.session
    for text in (b"one", b"two"):
        assert right.session.open(left.session.seal(text) + text) == text
        assert left.session.open(right.session.seal(text) + text) == text


@pytest.mark.parametrize(
    ("initiator", "acceptor", "to", "text"),
    [
        (Identity("m2", "c1", b"wrong"), Identity("m1", "c1", SECRET), "m1", "does not know this cluster's secret"),
        (Identity("m2", "c2", SECRET), Identity("m1", "c1", SECRET), "m1", "belongs to cluster 'c1', not 'c2'"),
        (Identity("m2", "c1", SECRET), Identity("m1", "c1", SECRET), "m4", "this is master 'm1', not 'm4'"),
        (Identity("m9", "c1", SECRET), Identity("m1", "c1", SECRET), "m1", "expects no connection from 'm9'"),
        (Identity("m0", "c1", SECRET), Identity("m1", "c1", SECRET), "m1", "expects no connection from 'm0'"),
    ],
)
def test_strangers_are_refused(initiator: Identity, acceptor: Identity, to: str, text: str) -> None:
    """A wrong secret, cluster or node id ends the handshake with the reason."""
    with pytest.raises(PeerRefused, match=text):
        meet(initiator, acceptor, to)


@pytest.mark.parametrize(
    ("initiator", "acceptor"),
    [
        ((SECRET, b""), (SECRET, b"the next secret")),
        ((SECRET, b"the next secret"), (SECRET, b"")),
        ((SECRET, b"the next secret"), (b"the next secret", SECRET)),
        ((b"the next secret", SECRET), (SECRET, b"the next secret")),
        ((b"the next secret", b""), (b"the next secret", SECRET)),
        ((b"the next secret", SECRET), (b"the next secret", b"")),
    ],
)
def test_a_secret_is_changed_master_by_master(initiator: tuple[bytes, bytes], acceptor: tuple[bytes, bytes]) -> None:
    """Two masters meet wherever each is in the change: the other secret is taken, then goes first, then is alone."""
    left, right = meet(Identity("m2", "c1", *initiator), Identity("m1", "c1", *acceptor))
    assert left.session
    assert right.session
    assert right.session.open(left.session.seal(b"one") + b"one") == b"one"
    assert left.session.open(right.session.seal(b"two") + b"two") == b"two"


def test_the_acceptor_s_first_secret_has_to_be_known() -> None:
    """A master whose other secret is the initiator's only one is not believed: it may be about to forget it."""
    with pytest.raises(PeerRefused, match="does not know this cluster's secret"):
        meet(Identity("m2", "c1", SECRET), Identity("m1", "c1", b"the next secret", SECRET))


def test_a_client_without_the_secret_cannot_prove_it() -> None:
    """An initiator that skips its own check still fails the acceptor's."""
    right = Acceptor(Identity("m1", "c1", SECRET), {"m2": ""}, TWO)
    right.feed(Initiator(Identity("m2", "c1", b"wrong"), "m1", ONE).hello())
    with pytest.raises(PeerRefused, match="not this cluster's"):
        right.feed(b"\x03" + bytes(32))
    assert right.session is None


def test_a_recorded_handshake_cannot_be_replayed() -> None:
    """Frames recorded from one connection prove nothing on another, whose nonce differs."""
    left = Initiator(Identity("m2", "c1", SECRET), "m1", ONE)
    right = Acceptor(Identity("m1", "c1", SECRET), {"m2": ""}, TWO)
    hello = left.hello()
    challenge = right.feed(hello)
    assert challenge
    proof = left.feed(challenge)
    assert proof
    again = Acceptor(Identity("m1", "c1", SECRET), {"m2": ""}, bytes(NONCE_BYTES))
    again.feed(hello)
    with pytest.raises(PeerRefused):
        again.feed(proof)


def test_another_protocol_version_is_named() -> None:
    """A hello of another version is refused with both versions in the text."""
    hello = bytearray(Initiator(Identity("m2", "c1", SECRET), "m1", ONE).hello())
    hello[1] = 9
    with pytest.raises(PeerRefused, match="version 9; this master speaks 1"):
        Acceptor(Identity("m1", "c1", SECRET), {"m2": ""}, TWO).feed(bytes(hello))


@pytest.mark.parametrize("trouble", ["flip", "replay", "reflect", "skip", "short"])
def test_altered_messages_are_refused(trouble: str) -> None:
    """A flipped, repeated, reflected, missing or cut message fails its MAC."""
    left, right = meet()
    assert left.session
    assert right.session
    first = left.session.seal(b"payload") + b"payload"
    if trouble == "flip":
        first = first[:-1] + b"x"
    elif trouble == "replay":
        right.session.open(first)
    elif trouble == "reflect":
        right = left  # type: ignore[assignment] # the sender gets its own message back
    elif trouble == "skip":
        first = left.session.seal(b"payload") + b"payload"
    else:
        first = first[:10]
    assert right.session
    with pytest.raises(WireError):
        right.session.open(first)


@pytest.mark.parametrize("length", [0, 1, 30, 67, 68, 69, 300])
def test_garbage_is_refused(length: int) -> None:
    """Whatever bytes come as a hello, the answer is a refusal and not another error."""
    for first in range(8):
        with pytest.raises(PeerRefused):
            Acceptor(Identity("m1", "c1", SECRET), {"m2": ""}, TWO).feed(bytes([first, 1, 0]) + b"\xff" * length)
