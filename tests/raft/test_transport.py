"""The TCP transport against real sockets: who gets in, what is refused, what is bounded."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.net.tls import TlsPipe
from holdfast.common.system.ports import free_ports
from holdfast.master.raft.errors import WireError
from holdfast.master.raft.handshake import NONCE_BYTES, Initiator, MemberIdentity
from holdfast.master.raft.link import TURN_BYTES, Link
from holdfast.master.raft.transport import OUT_LIMIT_BYTES, SHAKES_PER_POLL, TlsContexts, Transport
from tests.support.certificates import Authority, authority
from tests.support.descriptors import no_descriptors

SECRET = b"secret"


class Recorder:
    """Remembers what a transport tells."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.payloads: list[bytes] = []

    def connected(self, peer: str) -> None:
        """Note."""
        self.events.append(("connected", peer))

    def disconnected(self, peer: str) -> None:
        """Note."""
        self.events.append(("disconnected", peer))

    def hearing(self, peer: str) -> None:
        """Note."""
        self.events.append(("hearing", peer))

    def received(self, peer: str, payload: bytes) -> None:
        """Note, and refuse what begins with "bad"."""
        if payload.startswith(b"bad"):
            raise WireError("a bad payload")
        self.payloads.append(payload)


class Pair:
    """Transports of m1 (listens) and m2 (connects)."""

    def __init__(self, tls: TlsContexts | None) -> None:
        self.open: list[Transport] = []
        self.tls = tls

    def make(
        self, name: str, port: int, peers: dict[str, str], secret: bytes = SECRET, cluster: str = "c1", **other: Any
    ) -> Transport:
        """One transport with its recorder in `handler`; `tls` may be another than that of the pair."""
        identity, tls = MemberIdentity(name, cluster, secret), other.get("tls", self.tls)
        transport = Transport(identity, f"127.0.0.1:{port}", peers, time.monotonic, tls=tls)
        transport.bind(Recorder())
        self.open.append(transport)
        return transport

    def run(self, until: Callable[[], object], seconds: float = 10.0) -> None:
        """Turn all transports until something holds."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, "waited in vain"
            for transport in self.open:
                transport.poll(0.005)
                transport.flush()


def contexts(folder: Path, host: str = "127.0.0.1", signer: Authority | None = None) -> TlsContexts:
    """What a master of that name and authority has."""
    signer = signer or authority()
    return TlsContexts(signer.issue(host).context(folder), signer.credentials().context)


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Transports that are closed at the end; every test runs as they are and under TLS, unless it says which."""
    made = Pair(contexts(tmp_path) if request.param == "tls" else None)
    yield made
    for transport in made.open:
        transport.close()


def two(pair: Pair, **right: object) -> tuple[Transport, Transport]:
    """m1 and m2 on free ports; keywords change m2."""
    one, other = free_ports(2)
    listens = pair.make("m1", one, {"m2": f"127.0.0.1:{other}"})
    connects = pair.make("m2", other, {"m1": f"127.0.0.1:{one}"}, **right)  # type: ignore[arg-type]
    return listens, connects


def recorder(transport: Transport) -> Recorder:
    """What it told."""
    handler = transport._handler
    assert isinstance(handler, Recorder)
    return handler


def test_a36_a_master_without_descriptors_goes_on(pair: Pair) -> None:
    """A peer that is to be called while this host has no descriptors left is called later: the error left the Raft
    thread, and with it the master ended, and so did all others on such a host."""
    listens, connects = two(pair)
    "127.0.0.1".encode("idna")  # TLS asks for this codec, whose module is a file
    with no_descriptors():
        connects.poll(0)
        assert "Too many open files" in connects.errors["m1"]
    pair.run(lambda: connects.is_connected("m1") and listens.is_connected("m2"))


def test_messages_pass_in_order(pair: Pair) -> None:
    """Small and large payloads arrive whole and in order, both ways."""
    left, right = two(pair)
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    payloads = [b"%d" % number * (1 + number * 5000) for number in range(60)]
    for payload in payloads:
        left.send("m2", payload)
        right.send("m1", payload)
    pair.run(lambda: len(recorder(left).payloads) == len(recorder(right).payloads) == len(payloads))
    assert recorder(left).payloads == recorder(right).payloads == payloads


def test_a_large_payload_is_heard_before_it_is_whole(pair: Pair) -> None:
    """While megabytes are on their way the receiver is told that their sender lives."""
    left, right = two(pair)
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    right.send("m1", bytes(8 << 20))
    pair.run(lambda: recorder(left).payloads)
    assert ("hearing", "m2") in recorder(left).events


@pytest.mark.parametrize(
    ("right", "text"),
    [({"secret": b"other"}, "secret"), ({"cluster": "c2"}, "belongs to cluster 'c1', not 'c2'")],
)
def test_strangers_do_not_get_in(pair: Pair, right: dict[str, object], text: str) -> None:
    """A wrong secret or cluster never connects, and the connecting side can say why."""
    left, connects = two(pair, **right)
    pair.run(lambda: "m1" in connects.errors)
    assert text in connects.errors["m1"]
    assert not recorder(left).events
    assert not recorder(connects).events


def test_a_refused_payload_closes_the_connection_and_it_comes_back(pair: Pair) -> None:
    """What cannot be read costs the connection, not the node."""
    left, right = two(pair)
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    right.send("m1", b"bad one")
    pair.run(lambda: recorder(left).events[-2:] == [("disconnected", "m2"), ("connected", "m2")])
    pair.run(lambda: right.is_connected("m1"))
    right.send("m1", b"good")
    pair.run(lambda: recorder(left).payloads == [b"good"])


def raw(transport_port: int, host: str = "127.0.0.1") -> socket.socket:
    """A bare connection, from that address."""
    return socket.create_connection(("127.0.0.1", transport_port), timeout=60, source_address=(host, 0))


def stranger(transport_port: int) -> socket.socket:
    """A bare connection that may still be under way."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", transport_port))
    return sock


def port_of(transport: Transport) -> int:
    """Where it listens."""
    return int(transport._listener.getsockname()[1])


@pytest.mark.parametrize("data", [b"\xff" * 64, struct.pack("<I", 0), struct.pack("<I", 2000), b"GET / HTTP/1.1\r\n"])
def test_garbage_before_the_handshake_is_cut_off(pair: Pair, data: bytes) -> None:
    """A length above the handshake's bound or a frame that is no hello ends the connection at once."""
    left, _ = two(pair)
    with raw(port_of(left)) as sock:
        sock.sendall(data)
        sock.setblocking(False)
        heard = bytearray()

        def closed() -> bool:
            try:
                piece = sock.recv(1000)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            heard.extend(piece)
            return not piece

        pair.run(closed)
    assert len(heard) < 600


PLAIN = pytest.mark.parametrize("pair", ["plain"], indirect=True)
TLS = pytest.mark.parametrize("pair", ["tls"], indirect=True)


@PLAIN
def test_a_replayed_frame_is_refused(pair: Pair) -> None:
    """A sealed frame sent twice on one connection fails its MAC the second time."""
    (port,) = free_ports(1)
    left = pair.make("m1", port, {"m2": "127.0.0.1:1"})
    initiator = Initiator(MemberIdentity("m2", "c1", SECRET), "m1", bytes(NONCE_BYTES))
    with raw(port) as sock:
        frame: bytes | None = initiator.hello()
        while initiator.session is None:
            if frame is not None:
                sock.sendall(struct.pack("<I", len(frame)) + frame)
            sock.setblocking(False)
            pair.run(lambda: _peek(sock))
            sock.setblocking(True)
            (length,) = struct.unpack("<I", sock.recv(4, socket.MSG_WAITALL))
            frame = initiator.feed(sock.recv(length, socket.MSG_WAITALL))
        sealed = initiator.session.seal(b"hello") + b"hello"
        sealed = struct.pack("<I", len(sealed)) + sealed
        sock.sendall(sealed + sealed)
        pair.run(lambda: ("disconnected", "m2") in recorder(left).events)
    assert recorder(left).payloads == [b"hello"]
    assert "MAC" in left.errors["m2"]


def _peek(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(4, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_a19_strangers_are_bounded_and_keep_no_peer_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many connections from a peer's host wait for their handshake, and so many from others; who comes when all
    places are taken gets that of the first, so a peer gets in; and strangers are a line of the log in a while."""
    monkeypatch.setattr("holdfast.master.raft.transport.KNOWN_STRANGERS_MAX", 8)
    monkeypatch.setattr("holdfast.master.raft.transport.OTHER_STRANGERS_MAX", 4)
    one, other = free_ports(2)
    left = pair.make("m1", one, {"m2": f"127.0.0.1:{other}"})
    socks = [raw(one) for _ in range(24)] + [raw(one, "127.0.0.2") for _ in range(24)]
    pair.run(lambda: left.displaced == 16 + 20)
    assert (len(left._known), len(left._others), left.strangers) == (8, 4, 12)
    right = pair.make("m2", other, {"m1": f"127.0.0.1:{one}"})
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    assert len(left._others) == 4, "who comes from a peer's host takes no place of others"
    for sock in socks:
        sock.close()


@TLS
def test_a19_a_peer_gets_in_while_strangers_come_again_and_again(pair: Pair) -> None:
    """Strangers who say nothing, connect again as soon as they are closed, and are always there before the peer: it
    has its connection all the same."""
    one, other = free_ports(2)
    left = pair.make("m1", one, {"m2": f"127.0.0.1:{other}"})
    strangers = [stranger(one) for _ in range(24)]

    def again() -> None:
        for number, sock in enumerate(strangers):
            try:
                closed = sock.recv(1) == b""
            except BlockingIOError:
                closed = False
            except OSError:
                closed = True
            if closed:
                sock.close()
                strangers[number] = stranger(one)

    right = None
    turn = 0

    def met() -> bool:
        nonlocal right, turn
        again()
        turn += 1
        if turn == 10:
            right = pair.make("m2", other, {"m1": f"127.0.0.1:{one}"})
        return right is not None and left.is_connected("m2") and right.is_connected("m1")

    pair.run(met, 30)
    for sock in strangers:
        sock.close()


def test_a_peer_that_does_not_read_is_disconnected(pair: Pair) -> None:
    """What waits for a peer is bounded: beyond the limit the connection is given up."""
    left, right = two(pair)
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    block = bytes(8 << 20)
    for _ in range(OUT_LIMIT_BYTES // len(block) + 1):
        left.send("m2", block)
    assert not left.is_connected("m2")
    assert "does not read" in left.errors["m2"]


@TLS
@pytest.mark.parametrize(
    ("host", "stranger", "words"),
    [("127.0.0.1", True, "signed by the CA"), ("other.example", False, "name the host")],
)
def test_a_master_is_known_by_its_certificate(
    pair: Pair, tmp_path: Path, host: str, stranger: bool, words: str
) -> None:
    """The side that connects verifies authority and host of the other, before it says anything; and says which is
    wrong."""
    listens = contexts(tmp_path / "m1", host, Authority() if stranger else None)
    one, other = free_ports(2)
    left = pair.make("m1", one, {"m2": f"127.0.0.1:{other}"}, tls=listens)
    right = pair.make("m2", other, {"m1": f"127.0.0.1:{one}"})
    pair.run(lambda: "m1" in right.errors and not left.strangers)
    assert words in right.errors["m1"]
    assert not recorder(left).events


@TLS
def test_the_secret_is_proved_inside_tls(pair: Pair) -> None:
    """A certificate alone lets nobody in."""
    left, right = two(pair, secret=b"other")
    pair.run(lambda: "m1" in right.errors)
    assert "secret" in right.errors["m1"]
    assert not recorder(left).events


@pytest.mark.parametrize("pair", ["plain", "tls"], indirect=True)
def test_security_at_one_end_only_is_reported(pair: Pair, tmp_path: Path) -> None:
    """Whichever end has it, the side that connects says what is wrong."""
    left, right = two(pair, tls=None if pair.tls else contexts(tmp_path))
    pair.run(lambda: "security" in right.errors.get("m1", ""))
    assert not recorder(left).events


@TLS
def test_half_handshakes_end_and_cost_little(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut, damaged and unfinished handshakes are given up after their time; one turn takes few steps of them, and a
    master that comes meanwhile gets in."""
    monkeypatch.setattr("holdfast.master.raft.transport.HANDSHAKE_SECONDS", 1.0)
    steps: list[int] = []
    feed = Link.feed

    def counted(link: Link, data: bytes, scratch: memoryview) -> None:
        steps.append(link.shaking)
        feed(link, data, scratch)

    monkeypatch.setattr(Link, "feed", counted)
    pipe = TlsPipe(authority().credentials().context, "127.0.0.1")
    pipe.shake()
    hello, chance = pipe.take(), random.Random(4)
    (port, other) = free_ports(2)
    left = pair.make("m1", port, {"m2": f"127.0.0.1:{other}"})
    socks = [raw(port) for _ in range(15)]
    pair.run(lambda: left.strangers == len(socks))
    for number, sock in enumerate(socks):
        damaged = bytearray(hello)
        damaged[chance.randrange(5, len(hello))] ^= 1 << chance.randrange(8)
        sock.sendall((hello[: chance.randrange(1, len(hello))], bytes(damaged), hello)[number % 3])
    turns: list[int] = []
    while sum(turns) < len(socks):
        left.poll(0.005)
        turns.append(sum(steps))
        steps.clear()
    assert max(turns) == SHAKES_PER_POLL
    right = pair.make("m2", other, {"m1": f"127.0.0.1:{port}"})
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    pair.run(lambda: not left.strangers)
    for sock in socks:
        sock.close()


@TLS
def test_one_turn_seals_a_bounded_amount(pair: Pair) -> None:
    """However much waits and however fast the other side takes it, a call to the transport comes to its end soon."""
    left, right = two(pair)
    pair.run(lambda: left.is_connected("m2") and right.is_connected("m1"))
    sealed: list[int] = []
    link = right._links["m1"]
    seal = link._seal

    def counted(tls: TlsPipe) -> int:
        sealed.append(seal(tls))
        return sealed[-1]

    link._seal = counted  # type: ignore[method-assign]
    payloads = [bytes([number]) * (9 << 20) for number in range(3)]
    for payload in payloads:
        right.send("m1", payload)
    turns = []
    while len(recorder(left).payloads) < len(payloads):
        sealed.clear()
        right.flush()
        turns.append(sum(sealed))
        sealed.clear()
        right.poll(0)
        turns.append(sum(sealed))
        left.poll(0.005)
    assert recorder(left).payloads == payloads
    assert TURN_BYTES // 2 < max(turns) <= TURN_BYTES + (1 << 18)
    assert link.out_bytes == 0
