"""Mutual authentication of two masters by a shared secret, and the seal on every message after it.

Rules: pure (nonces are given); each side proves the secret over protocol version, cluster id, both node ids and both
nonces, so a proof serves for one connection in one direction only; the acceptor's first secret is the connection's, and
an initiator takes its own or, while the secret is changed, the other one; afterwards each direction has a key of its
own and every message a MAC over a growing number, so nothing can be forged, replayed, dropped or swapped unseen.
Frames of the handshake (inside the u32 length framing of `transport`):

    1 hello      version u16, nonce 32, then cluster id, own id, wanted id (each u8 length, bytes)
    2 challenge  nonce 32, proof 32
    3 proof      proof 32
    4 welcome
    5 refusal    text

Called by `transport`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.master.raft.errors import PeerRefused, WireError

PROTOCOL_VERSION = 1
NONCE_BYTES = 32
MAC_BYTES = 16
MAX_HANDSHAKE_BYTES = 1 << 10
HELLO, CHALLENGE, PROOF, WELCOME, REFUSAL = 1, 2, 3, 4, 5
_VERSION = struct.Struct("<H")
_SEQ = struct.Struct("<Q")


def _short(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 255:
        raise PeerRefused("a cluster id or node id is longer than 255 bytes")
    return bytes([len(raw)]) + raw


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is: node id, cluster id and the secret all masters share; `other_secret` is one more that it takes
    while the secret is changed, b"" at other times."""

    node_id: str
    cluster_id: str
    secret: bytes
    other_secret: bytes = b""


class Session:
    """Seals payloads going out and opens those coming in, each numbered from 0."""

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0

    def seal(self, payload: bytes) -> bytes:
        """MAC of the next payload to send; it goes in front of it."""
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
        if not hmac.compare_digest(frame[:MAC_BYTES], _mac(self._receive_key, self._received, payload)):
            raise WireError("a message fails its MAC (altered, replayed or out of order)")
        return payload


def _mac(key: bytes, seq: int, payload: bytes) -> bytes:
    state = hashlib.blake2b(_SEQ.pack(seq), key=key, digest_size=MAC_BYTES)
    state.update(payload)
    return state.digest()


def _bound(cluster_id: str, initiator: str, acceptor: str, nonces: bytes) -> bytes:
    """What both proofs and both keys are bound to."""
    return _VERSION.pack(PROTOCOL_VERSION) + _short(cluster_id) + _short(initiator) + _short(acceptor) + nonces


def _derive(secret: bytes, label: bytes, bound: bytes) -> bytes:
    return hmac.digest(secret, b"holdfast raft " + label + b"\0" + bound, "sha256")


def refusal(reason: str) -> bytes:
    """The frame that says why a connection is closed."""
    return bytes([REFUSAL]) + reason.encode()[:500]


def _raise_refusal(frame: bytes) -> None:
    if frame[:1] == bytes([REFUSAL]):
        raise PeerRefused(f"the peer refused: {frame[1:501].decode(errors='replace')}")


class Initiator:
    """The connecting side: the node with the greater id."""

    def __init__(self, me: Identity, peer: str, nonce: bytes) -> None:
        self._me, self.peer, self._nonce = me, peer, nonce
        self.session: Session | None = None
        self._pending: Session | None = None

    def hello(self) -> bytes:
        """The first frame."""
        ids = _short(self._me.cluster_id) + _short(self._me.node_id) + _short(self.peer)
        return bytes([HELLO]) + _VERSION.pack(PROTOCOL_VERSION) + self._nonce + ids

    def feed(self, frame: bytes) -> bytes | None:
        """Handle a frame; the frame to answer, if any. `session` is set when the handshake is complete.

        Raises:
            PeerRefused: with the reason.
        """
        _raise_refusal(frame)
        if self._pending is not None:
            if frame != bytes([WELCOME]):
                raise PeerRefused("no welcome where one was due")
            self.session = self._pending
            return None
        if len(frame) != 1 + NONCE_BYTES + 32 or frame[0] != CHALLENGE:
            raise PeerRefused("what answers there is no Holdfast master (no challenge)")
        bound = _bound(self._me.cluster_id, self._me.node_id, self.peer, self._nonce + frame[1 : 1 + NONCE_BYTES])
        secret = self._proved(frame[1 + NONCE_BYTES :], bound)
        self._pending = Session(_derive(secret, b"to acceptor", bound), _derive(secret, b"to initiator", bound))
        return bytes([PROOF]) + _derive(secret, b"initiator", bound)

    def _proved(self, proof: bytes, bound: bytes) -> bytes:
        """The secret that the acceptor goes by, which is its first; all else on this connection rests on that one."""
        for secret in filter(None, (self._me.secret, self._me.other_secret)):
            if hmac.compare_digest(proof, _derive(secret, b"acceptor", bound)):
                return secret
        raise PeerRefused(f"{self.peer} does not know this cluster's secret: give all masters the same")


class Acceptor:
    """The listening side. `peer` is set once a proper hello came, `session` once it is proven."""

    def __init__(self, me: Identity, peers: Mapping[str, object], nonce: bytes) -> None:
        self._me, self._peers, self._nonce = me, peers, nonce
        self.peer: str | None = None
        self.session: Session | None = None
        self._bound = b""

    def feed(self, frame: bytes) -> bytes | None:
        """See `Initiator.feed`."""
        _raise_refusal(frame)
        return self._hello(frame) if self.peer is None else self._proof(frame)

    def _hello(self, frame: bytes) -> bytes:
        start = 1 + _VERSION.size + NONCE_BYTES
        if len(frame) < start or frame[0] != HELLO:
            raise PeerRefused("not a hello of a Holdfast master")
        (version,) = _VERSION.unpack_from(frame, 1)
        if version != PROTOCOL_VERSION:
            raise PeerRefused(f"protocol version {version}; this master speaks {PROTOCOL_VERSION}: see docs/upgrade.md")
        cluster_id, peer, wanted = self._ids(frame[start:])
        if cluster_id != self._me.cluster_id:
            raise PeerRefused(f"this master belongs to cluster {self._me.cluster_id!r}, not {cluster_id!r}")
        if wanted != self._me.node_id:
            raise PeerRefused(f"this is master {self._me.node_id!r}, not {wanted!r}: check the peers' addresses")
        if peer not in self._peers or peer <= self._me.node_id:
            raise PeerRefused(f"master {self._me.node_id!r} expects no connection from {peer!r}")
        self.peer = peer
        self._bound = _bound(cluster_id, peer, wanted, frame[1 + _VERSION.size : start] + self._nonce)
        return bytes([CHALLENGE]) + self._nonce + _derive(self._me.secret, b"acceptor", self._bound)

    @staticmethod
    def _ids(rest: bytes) -> list[str]:
        ids: list[str] = []
        while rest:
            ids.append(rest[1 : 1 + rest[0]].decode(errors="replace"))
            rest = rest[1 + rest[0] :]
        if len(ids) != 3:
            raise PeerRefused("a hello with the wrong number of names")
        return ids

    def _proof(self, frame: bytes) -> bytes:
        secret = self._me.secret
        due = bytes([PROOF]) + _derive(secret, b"initiator", self._bound)
        if not hmac.compare_digest(frame, due):
            raise PeerRefused("the secret is not this cluster's: give all masters the same")
        self.session = Session(
            _derive(secret, b"to initiator", self._bound), _derive(secret, b"to acceptor", self._bound)
        )
        return bytes([WELCOME])
