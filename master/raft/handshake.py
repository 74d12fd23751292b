"""Mutual authentication of two masters by a shared secret, and the seal on every message after it.

Rules: pure (nonces are given). Who calls proves the secret first, over both nonces; only then does the other side prove
it, and names are sent only then: so a peer without the secret gets nothing that was made with it, and neither a
name nor the cluster's id, and an impostor that answers gets no name. Each proof is bound to version, both
nonces and the side that makes it, so it serves for one connection in one direction: a proof that is sent back to its
maker, or kept for later, proves nothing. One that is passed on between two masters lets these two speak with each
other and no others, since the keys are made of the secret. The names are sealed, and the keys of a connection are
bound to them too. The acceptor's first secret is the connection's; an initiator proves its own and, while the secret is
changed, the other one. Afterwards each direction has a key of its own and every message a MAC over a growing number, so
nothing can be forged, replayed, dropped or swapped unseen.
Frames of the handshake (inside the u32 length framing of `transport`); I is the initiator, A the acceptor:

    I  1 hello      version u16, nonce 32
    A  2 challenge  nonce 32
    I  3 proof      32, or 64 with the other secret's behind the first
    A  6 proven     32
    I  7 names      MAC 32, then cluster id, own id, wanted id, digest of own peers (each u8 length, bytes)
    A  4 welcome    MAC 32, digest of own peers
    A  5 refusal    text

Called by `transport`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hmac import compare_digest

from holdfast.master.raft.errors import PeerRefused, WireError

PROTOCOL_VERSION = 3
NONCE_BYTES = 32
PROOF_BYTES = 32
MAC_BYTES = 16
MAX_HANDSHAKE_BYTES = 1 << 10
#: Hello with its version, and refusal, are the same in all versions: so two of them can send each other the reason.
HELLO, CHALLENGE, PROOF, WELCOME, REFUSAL, PROVEN, NAMES = range(1, 8)
_WRONG_SECRET = "the secret is not this cluster's: give all masters the same"
_VERSION = struct.Struct("<H")
_SEQ = struct.Struct("<Q")


def _short(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 255:
        raise PeerRefused("a cluster id or node id is longer than 255 bytes")
    return bytes([len(raw)]) + raw


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Who this node is: node id, cluster id and the secret all masters share; `other_secret` is one more that it takes
    while the secret is changed, b"" at other times; `members` the digest of its list of all masters."""

    node_id: str
    cluster_id: str
    secret: bytes
    other_secret: bytes = b""
    members: str = ""


class SecureSession:
    """Seals payloads going out and opens those coming in, each numbered from 0."""

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0

    def seal(self, payload: bytes) -> bytes:
        """MAC of the next payload to send; it is sent before it."""
        self._sent += 1
        return _mac(self._send_key, self._sent, payload)

    def open(self, frame: bytes) -> bytes:
        """The payload of the next frame received.

        Raises:
            WireError: the MAC does not fit: altered, replayed, or out of order.
        """
        if len(frame) < MAC_BYTES:
            raise WireError("a frame shorter than its MAC")
        payload = frame[MAC_BYTES:]
        self._received += 1
        if not compare_digest(frame[:MAC_BYTES], _mac(self._receive_key, self._received, payload)):
            raise WireError("a message fails its MAC (altered, replayed or out of order)")
        return payload


def _mac(key: bytes, seq: int, payload: bytes) -> bytes:
    state = hashlib.blake2b(_SEQ.pack(seq), key=key, digest_size=MAC_BYTES)
    state.update(payload)
    return state.digest()


def _derive(secret: bytes, label: bytes, bound: bytes) -> bytes:
    return hmac.digest(secret, b"holdfast raft " + label + b"\0" + bound, "sha256")


def refusal(reason: str) -> bytes:
    """The frame that says why a connection is closed."""
    return bytes([REFUSAL]) + reason.encode()[:500]


def _expect(frame: bytes, kind: int, sizes: Collection[int], otherwise: str) -> bytes:
    """What a frame of this kind holds. Raises PeerRefused for another one."""
    if frame[:1] == bytes([REFUSAL]):
        raise PeerRefused(f"the peer refused: {frame[1:501].decode(errors='replace')}")
    if frame[:1] != bytes([kind]) or (sizes and len(frame) - 1 not in sizes):
        raise PeerRefused(otherwise)
    return frame[1:]


class Initiator:
    """The connecting side: the node with the greater id."""

    def __init__(self, me: MemberIdentity, peer: str, nonce: bytes) -> None:
        self._me, self.peer, self._nonce = me, peer, nonce
        self.session: SecureSession | None = None
        #: the other side's, with the session
        self.members = ""
        self._step: Callable[[bytes], bytes | None] = self._challenge
        #: what all proofs are bound to, and the secret that the other side has proved
        self._bound, self._secret, self._names = b"", b"", b""

    def hello(self) -> bytes:
        """The first frame."""
        return bytes([HELLO]) + _VERSION.pack(PROTOCOL_VERSION) + self._nonce

    def feed(self, frame: bytes) -> bytes | None:
        """Handle a frame; the frame to answer, if any. `session` is set when the handshake is complete.

        Raises:
            PeerRefused: with the reason.
        """
        return self._step(frame)

    def _challenge(self, frame: bytes) -> bytes | None:
        nonce = _expect(frame, CHALLENGE, (NONCE_BYTES,), "the peer is not a Holdfast master (no challenge)")
        self._bound = _VERSION.pack(PROTOCOL_VERSION) + self._nonce + nonce
        self._step = self._proven
        return bytes([PROOF]) + b"".join([_derive(each, b"initiator", self._bound) for each in self._secrets()])

    def _secrets(self) -> list[bytes]:
        return [secret for secret in (self._me.secret, self._me.other_secret) if secret]

    def _proven(self, frame: bytes) -> bytes | None:
        wrong = f"{self.peer} has another cluster secret: give all masters the same"
        proof = _expect(frame, PROVEN, (PROOF_BYTES,), wrong)
        for secret in self._secrets():
            if compare_digest(proof, _derive(secret, b"acceptor", self._bound)):
                self._secret = secret
                break
        else:
            raise PeerRefused(wrong)
        self._names = b"".join(map(_short, (self._me.cluster_id, self._me.node_id, self.peer, self._me.members)))
        self._step = self._welcome
        return bytes([NAMES]) + _derive(secret, b"names", self._bound + self._names) + self._names

    def _welcome(self, frame: bytes) -> bytes | None:
        bound = self._bound + self._names
        sealed = _expect(frame, WELCOME, (), "no welcome where one was due")
        members = sealed[PROOF_BYTES:]
        if not compare_digest(sealed[:PROOF_BYTES], _derive(self._secret, b"welcome", bound + members)):
            raise PeerRefused("the welcome was altered")
        self.members = members.decode(errors="replace")
        self.session = SecureSession(
            _derive(self._secret, b"to acceptor", bound), _derive(self._secret, b"to initiator", bound)
        )
        return None


class Acceptor:
    """The listening side. `peer` is set once a master has proved the secret and said its name, `session` with it."""

    def __init__(self, me: MemberIdentity, peers: Mapping[str, object], nonce: bytes) -> None:
        self._me, self._peers, self._nonce = me, peers, nonce
        self.peer: str | None = None
        self.session: SecureSession | None = None
        self.members = ""
        self._step: Callable[[bytes], bytes] = self._hello
        self._bound = b""

    def feed(self, frame: bytes) -> bytes | None:
        """See `Initiator.feed`."""
        if self.session is not None:
            raise PeerRefused("the handshake has completed before")
        return self._step(frame)

    def _hello(self, frame: bytes) -> bytes:
        hello = _expect(frame, HELLO, (), "not a hello of a Holdfast master")
        if len(hello) < _VERSION.size:
            raise PeerRefused("not a hello of a Holdfast master")
        (version,) = _VERSION.unpack_from(hello)
        if version != PROTOCOL_VERSION:
            raise PeerRefused(
                f"protocol version {version}; this one has {PROTOCOL_VERSION}: see docs/operate/upgrade.md"
            )
        if len(hello) != _VERSION.size + NONCE_BYTES:
            raise PeerRefused("not a hello of a Holdfast master")
        self._bound = hello + self._nonce
        self._step = self._proof
        return bytes([CHALLENGE]) + self._nonce

    def _proof(self, frame: bytes) -> bytes:
        proofs = _expect(frame, PROOF, (PROOF_BYTES, 2 * PROOF_BYTES), _WRONG_SECRET)
        due = _derive(self._me.secret, b"initiator", self._bound)
        if not any(compare_digest(proofs[at : at + PROOF_BYTES], due) for at in range(0, len(proofs), PROOF_BYTES)):
            raise PeerRefused(_WRONG_SECRET)
        self._step = self._called
        return bytes([PROVEN]) + _derive(self._me.secret, b"acceptor", self._bound)

    def _called(self, frame: bytes) -> bytes:
        """From here on the other side is a master with the secret, and gets the reason of a refusal."""
        secret = self._me.secret
        sealed = _expect(frame, NAMES, (), "no names where they were due")
        names = sealed[PROOF_BYTES:]
        if not compare_digest(sealed[:PROOF_BYTES], _derive(secret, b"names", self._bound + names)):
            raise PeerRefused("the names were altered")
        cluster_id, peer, wanted, members = _read_names(names)
        if cluster_id != self._me.cluster_id:
            raise PeerRefused(f"this master belongs to cluster {self._me.cluster_id!r}, not {cluster_id!r}")
        if wanted != self._me.node_id:
            raise PeerRefused(f"this is master {self._me.node_id!r}, not {wanted!r}: check the peers' addresses")
        if peer not in self._peers or peer <= self._me.node_id:
            raise PeerRefused(f"master {self._me.node_id!r} expects no connection from {peer!r}")
        self.peer, self.members = peer, members
        bound = self._bound + names
        self.session = SecureSession(_derive(secret, b"to initiator", bound), _derive(secret, b"to acceptor", bound))
        own = self._me.members.encode()
        return bytes([WELCOME]) + _derive(secret, b"welcome", bound + own) + own


def _read_names(rest: bytes) -> list[str]:
    names: list[str] = []
    while rest:
        names.append(rest[1 : 1 + rest[0]].decode(errors="replace"))
        rest = rest[1 + rest[0] :]
    if len(names) != 4:
        raise PeerRefused("the wrong number of names")
    return names
