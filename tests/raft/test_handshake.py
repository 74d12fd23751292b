"""Who may talk to a master, and what becomes of altered or repeated messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.master.raft.errors import PeerRefused, WireError
from holdfast.master.raft.handshake import NONCE_BYTES, Acceptor, Initiator, MemberIdentity

SECRET = b"the masters' secret"
ONE, TWO = bytes(range(NONCE_BYTES)), bytes(range(100, 100 + NONCE_BYTES))


LEFT, RIGHT = MemberIdentity("m2", "c1", SECRET), MemberIdentity("m1", "c1", SECRET)


def meet(
    initiator: MemberIdentity = LEFT, acceptor: MemberIdentity = RIGHT, to: str = "m1"
) -> tuple[Initiator, Acceptor]:
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


def test_each_side_learns_which_masters_the_other_knows() -> None:
    """By the digest of its list, which none may alter."""
    left, right = meet(replace(LEFT, members="five"), replace(RIGHT, members="three"))
    assert (left.members, right.members) == ("three", "five")


@pytest.mark.parametrize(
    ("initiator", "acceptor", "to", "text"),
    [
        (
            MemberIdentity("m2", "c1", b"wrong"),
            MemberIdentity("m1", "c1", SECRET),
            "m1",
            "the secret is not this cluster's",
        ),
        (
            MemberIdentity("m2", "c2", SECRET),
            MemberIdentity("m1", "c1", SECRET),
            "m1",
            "belongs to cluster 'c1', not 'c2'",
        ),
        (MemberIdentity("m2", "c1", SECRET), MemberIdentity("m1", "c1", SECRET), "m4", "this is master 'm1', not 'm4'"),
        (
            MemberIdentity("m9", "c1", SECRET),
            MemberIdentity("m1", "c1", SECRET),
            "m1",
            "expects no connection from 'm9'",
        ),
        (
            MemberIdentity("m0", "c1", SECRET),
            MemberIdentity("m1", "c1", SECRET),
            "m1",
            "expects no connection from 'm0'",
        ),
    ],
)
def test_strangers_are_refused(initiator: MemberIdentity, acceptor: MemberIdentity, to: str, text: str) -> None:
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
    left, right = meet(MemberIdentity("m2", "c1", *initiator), MemberIdentity("m1", "c1", *acceptor))
    assert left.session
    assert right.session
    assert right.session.open(left.session.seal(b"one") + b"one") == b"one"
    assert left.session.open(right.session.seal(b"two") + b"two") == b"two"


def test_the_acceptor_s_first_secret_has_to_be_known() -> None:
    """A master whose other secret is the initiator's only one is not believed: it may be about to forget it."""
    with pytest.raises(PeerRefused, match="the secret is not this cluster's"):
        meet(MemberIdentity("m2", "c1", SECRET), MemberIdentity("m1", "c1", b"the next secret", SECRET))


def test_a_client_without_the_secret_cannot_prove_it() -> None:
    """An initiator with another secret, with none, and one that goes on to names at once, are refused in the same
    words."""
    for frame in (b"\x03" + bytes(32), b"\x03" + bytes(64), b"\x07" + bytes(32) + b"\x02c1\x02m2\x02m1"):
        right = Acceptor(RIGHT, {"m2": ""}, TWO)
        right.feed(Initiator(LEFT, "m1", ONE).hello())
        with pytest.raises(PeerRefused, match="the secret is not this cluster's"):
            right.feed(frame)
        assert (right.session, right.peer) == (None, None)


def test_a23_who_connects_hears_nothing_before_a_proof() -> None:
    """What an acceptor says to a stranger is the same whatever its secret, cluster and name are."""
    heard = set()
    for identity in (
        RIGHT,
        MemberIdentity("m1", "c1", b"another secret, as long"),
        MemberIdentity("m0", "c9", SECRET, b"and a new"),
    ):
        right = Acceptor(identity, {"m2": "", "m3": ""}, TWO)
        challenge = right.feed(Initiator(LEFT, "m1", ONE).hello())
        with pytest.raises(PeerRefused) as refused:
            right.feed(b"\x03" + bytes(32))
        heard.add((challenge, str(refused.value)))
    assert len(heard) == 1
    assert heard.pop()[0] == b"\x02" + TWO


def test_a23_who_answers_in_a_masters_place_hears_no_name() -> None:
    """Who is called and cannot prove the secret is told neither cluster nor names."""
    left = Initiator(LEFT, "m1", ONE)
    said = left.hello() + (left.feed(b"\x02" + TWO) or b"")
    with pytest.raises(PeerRefused, match="m1 has another cluster secret"):
        left.feed(b"\x06" + bytes(32))
    for name in (b"c1", b"m1", b"m2"):
        assert name not in said


@pytest.mark.parametrize("also", [b"", b"the next secret"])
def test_a23_a_proof_that_is_sent_back_to_its_maker_proves_nothing(also: bytes) -> None:
    """A stranger that is called by one master and calls it at the same time, or another, with what it hears there: its
    own proofs are no proofs of the other side, whichever nonces are used."""
    me = MemberIdentity("m2", "c1", SECRET, also)
    left = Initiator(me, "m1", ONE)
    proof = left.feed(b"\x02" + ONE)  # its own nonce comes back
    assert proof is not None
    with pytest.raises(PeerRefused):
        left.feed(b"\x06" + proof[1:33])
    right = Acceptor(RIGHT, {"m2": ""}, TWO)
    right.feed(Initiator(me, "m1", ONE).hello())
    left = Initiator(me, "m1", ONE)
    proven = right.feed(left.feed(b"\x02" + TWO) or b"")
    assert proven is not None
    again = Acceptor(RIGHT, {"m2": ""}, TWO)
    again.feed(Initiator(me, "m1", ONE).hello())
    with pytest.raises(PeerRefused, match="secret"):
        again.feed(b"\x03" + proven[1:])


def test_a_recorded_handshake_cannot_be_replayed() -> None:
    """Frames recorded from one connection prove nothing on another, whose nonce differs."""
    left = Initiator(MemberIdentity("m2", "c1", SECRET), "m1", ONE)
    right = Acceptor(MemberIdentity("m1", "c1", SECRET), {"m2": ""}, TWO)
    hello = left.hello()
    challenge = right.feed(hello)
    assert challenge
    proof = left.feed(challenge)
    assert proof
    again = Acceptor(MemberIdentity("m1", "c1", SECRET), {"m2": ""}, bytes(NONCE_BYTES))
    again.feed(hello)
    with pytest.raises(PeerRefused):
        again.feed(proof)


@pytest.mark.parametrize("number", range(2, 6))
def test_altered_frames_of_a_handshake_are_refused(number: int) -> None:
    """Proofs, names and welcome: one flipped bit of any ends the handshake."""
    left, right = Initiator(LEFT, "m1", ONE), Acceptor(RIGHT, {"m2": ""}, TWO)
    with pytest.raises(PeerRefused):
        exchange(left, right, number)
    assert left.session is None


def exchange(left: Initiator, right: Acceptor, altered: int) -> None:
    """Pass the frames, one of them with a bit flipped."""
    said: bytes | None = left.hello()
    number = 0
    while said is not None:
        side = (right, left)[number % 2]
        said = side.feed(flipped(said) if number == altered else said)
        number += 1


def flipped(data: bytes) -> bytes:
    """With another last bit."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_another_protocol_version_is_named() -> None:
    """A hello of another version is refused with both versions in the text."""
    hello = bytearray(Initiator(MemberIdentity("m2", "c1", SECRET), "m1", ONE).hello())
    hello[1] = 9
    with pytest.raises(PeerRefused, match="version 9; this one has 3"):
        Acceptor(MemberIdentity("m1", "c1", SECRET), {"m2": ""}, TWO).feed(bytes(hello))


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
            Acceptor(MemberIdentity("m1", "c1", SECRET), {"m2": ""}, TWO).feed(bytes([first, 1, 0]) + b"\xff" * length)
