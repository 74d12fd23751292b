"""TCP between masters: one authenticated connection per pair, on one selector, in the Raft thread.

Rules: the node with the greater id connects, the other listens; a frame is u32 length, then (after the handshake) a
MAC of 16 bytes and the payload; lengths are checked before anything is kept; what waits to be sent is bounded, and a
peer that lets it overflow is disconnected; a newer authenticated connection replaces the older. Whoever has not proved
the secret yet is a stranger: strangers have a bounded number of places, those from hosts of peers by far the most, and
where all are taken the oldest is closed, so silent ones keep no master out. They are served after peers, and
are worth one line of the log in a while. With security on all
of it is under TLS: the side that connects verifies the other's certificate and address, and then both prove the
secret as they do without. `poll` waits for sockets or a `wake` and calls the handlers. Called by `node`.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from itertools import chain, islice, takewhile
from typing import NamedTuple, Protocol

from holdfast.common.log_events import LogEvent
from holdfast.common.net import detour
from holdfast.common.net.tls import TlsPipe
from holdfast.common.system.log import log_event
from holdfast.master.raft.errors import TAKEN, PeerRefused, RaftError, SettingsRefused, WireError
from holdfast.master.raft.handshake import NONCE_BYTES, Acceptor, Initiator, MemberIdentity, refusal
from holdfast.master.raft.link import Link

_READ_BYTES = 256 << 10
_RECEIVES_PER_POLL = 8
#: Steps of TLS handshakes in one `poll`: one may cost milliseconds of arithmetic, and strangers ask for it.
SHAKES_PER_POLL = 2
OUT_LIMIT_BYTES = 32 << 20
#: Connections that others began and that have not proved the secret yet: from hosts of peers, and from all others.
KNOWN_STRANGERS_MAX, OTHER_STRANGERS_MAX = 192, 64
STRANGERS_MAX = KNOWN_STRANGERS_MAX + OTHER_STRANGERS_MAX
HANDSHAKE_SECONDS = 3.0
#: Connections taken in one `poll`, and those that the system holds until then.
_ACCEPTS_PER_POLL, _BACKLOG = 4, 512
#: Between two lines of the log about strangers.
_STRANGERS_SAID_SECONDS = 10.0
RETRY_MIN, RETRY_MAX = 0.05, 1.0
_DEAD_AFTER_MS = 4_000


class TransportHandler(Protocol):
    """Told what happens on connections; `member.RaftMember` is one."""

    def connected(self, peer: str) -> None:
        """Authenticated."""

    def disconnected(self, peer: str) -> None:
        """Gone."""

    def received(self, peer: str, payload: bytes) -> None:
        """A payload; raises WireError to have the connection closed."""

    def hearing(self, peer: str) -> None:
        """Part of a large payload."""


class TlsContexts(NamedTuple):
    """For both sides of connections between masters."""

    listening: ssl.SSLContext
    calling: ssl.SSLContext


def split_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port"."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise SettingsRefused(f"{address!r} is no address: write host:port")
    return host, int(port)


def _plain(address: str) -> str:
    """An address of IPv4 as such, also where it came over IPv6."""
    return address.removeprefix("::ffff:")


class Names:
    """Addresses of hosts, looked up on a thread of their own: the Raft thread never waits for a name server."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[socket.AddressFamily, str]] = {}
        self._asked: set[str] = set()

    def find(self, host: str) -> tuple[socket.AddressFamily, str] | None:
        """Family and numeric address, or None while it is being looked up."""
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue  # not a numeric address of this family
            return family, host
        if host not in self._known and host not in self._asked:
            self._asked.add(host)
            threading.Thread(target=self._look_up, args=(host,), name="raft-names", daemon=True).start()
        return self._known.get(host)

    def forget(self, host: str) -> None:
        """The address did not answer: ask again next time."""
        self._known.pop(host, None)

    def _look_up(self, host: str) -> None:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
            self._known[host] = family, str(address[0])
        except OSError as error:
            log_event(LogEvent.RAFT_ADDRESS_UNRESOLVED, host=host, reason=error)
        finally:
            self._asked.discard(host)


class Transport:
    """All connections of one node. Not thread safe but for `wake`."""

    def __init__(
        self,
        me: MemberIdentity,
        address: str,
        peers: Mapping[str, str],
        clock: Callable[[], float],
        nonce: Callable[[], bytes] = lambda: os.urandom(NONCE_BYTES),
        tls: TlsContexts | None = None,
    ) -> None:
        self._tls, self._scratch, self._shakes_left = tls, memoryview(bytearray(_READ_BYTES)), 0
        self._me, self._peers, self._clock, self._nonce = me, dict(peers), clock, nonce
        #: When `poll` last stopped waiting.
        self.woke = clock()
        self._selector = selectors.DefaultSelector()
        self._links: dict[str, Link] = {}
        #: connections whose handshake is under way, those that came first in front: begun here, by hosts of peers, by
        #: others; with the address at the other end
        self._calling: dict[Link, str] = {}
        self._known: dict[Link, str] = {}
        self._others: dict[Link, str] = {}
        #: addresses of the peers' hosts, as far as they are known by now
        self._hosts = {peer: split_address(each)[0].strip("[]") for peer, each in self._peers.items()}
        #: when strangers were last logged, and how many were refused since
        self._said, self._unsaid = float("-inf"), 0
        #: connections that had to make room before they had proved anything
        self.displaced = 0
        self._retry: dict[str, tuple[float, float]] = {
            peer: (0.0, RETRY_MIN) for peer in self._peers if peer < me.node_id
        }
        self.errors: dict[str, str] = {}
        self._names = Names()
        self._handler: TransportHandler
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._listener = self._listen(address)

    def _listen(self, address: str) -> socket.socket:
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise SettingsRefused(f"cannot listen on {address}: {error}: {TAKEN}") from error
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, listener)
        return listener

    def bind(self, handler: TransportHandler) -> None:
        """Complete the transport."""
        self._handler = handler

    # towards the node

    def wake(self) -> None:
        """Make `poll` return; callable from any thread."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    @property
    def strangers(self) -> int:
        """Connections that others began and that have not proved the secret yet."""
        return len(self._known) + len(self._others)

    def is_connected(self, peer: str) -> bool:
        """Whether an authenticated connection to the peer is open."""
        return peer in self._links

    @property
    def all_agree(self) -> bool:
        """Whether all peers are connected, with the same list of masters."""
        return all(
            peer in self._links and self._links[peer].handshake.members == self._me.members for peer in self._peers
        )

    def send(self, peer: str, payload: bytes) -> None:
        """Queue a payload for a connected peer; `flush` puts it on the wire."""
        link = self._links.get(peer)
        if link is None or link.session is None:
            return
        link.put(link.session.seal(payload), payload)
        if link.out_bytes > OUT_LIMIT_BYTES:
            self._close(link, "it does not read the data that is sent to it")

    def flush(self) -> None:
        """Write what sockets take now; the rest is sent when they take more."""
        for link in list(self._links.values()):
            if link.waits and not link.writing:
                self._write(link)

    def next_due(self) -> float | None:
        """Clock time at which a connection is to be tried or closed."""
        if self._settled():
            return None
        due = [at for peer, (at, _) in self._retry.items() if not self._trying(peer)]
        due += [link.deadline for group in self._unproved() for link in islice(group, 1)]
        return min(due, default=None)

    def poll(self, timeout: float | None) -> None:
        """Wait for events and handle them."""
        events = self._selector.select(timeout)
        self.woke = self._clock()
        self._shakes_left = SHAKES_PER_POLL
        for key, mask in sorted(events, key=self._turn_of) if self.strangers else events:
            if key.data is None:
                os.eventfd_read(self._wake)
            elif key.data is self._listener:
                self._accept()
            else:
                self._ready(key.data, mask)
        self._timers()

    def _settled(self) -> bool:
        """Whether every peer is connected and no stranger is: no connection is to be tried or closed."""
        return len(self._links) == len(self._peers) and not (self._calling or self._known or self._others)

    def _unproved(self) -> tuple[dict[Link, str], ...]:
        return self._calling, self._known, self._others

    def _turn_of(self, event: tuple[selectors.SelectorKey, int]) -> int:
        """Peers first, then possible peers, then others."""
        link = event[0].data
        return 2 if link in self._others else 1 if link in self._known else 0

    def close(self) -> None:
        """Close everything."""
        for link in [*self._links.values(), *chain(*self._unproved())]:
            self._selector.unregister(link.sock)
            link.sock.close()
            link.open = False
        self._links.clear()
        for group in self._unproved():
            group.clear()
        self._listener.close()
        self._selector.close()
        wake, self._wake = self._wake, -1
        os.close(wake)

    # connections

    def _trying(self, peer: str) -> bool:
        return peer in self._links or any(link.handshake.peer == peer for link in self._calling)

    def _timers(self) -> None:
        if self._settled():
            return
        now = self._clock()
        for group in self._unproved():
            for link in list(takewhile(lambda link: link.deadline <= now, group)):
                self._close(link, "the handshake took too long")
        for peer, (at, delay) in list(self._retry.items()):
            if at <= now and not self._trying(peer):
                self._retry[peer] = (now + delay, min(2 * delay, RETRY_MAX))
                self._connect(peer)

    def _connect(self, peer: str) -> None:
        host, port = split_address(self._peers[peer])
        place = self._names.find(detour.through(host, port))
        if place is None:
            self._note(peer, f"the address of {host} is being looked up")
            return
        self._names.forget(host)
        self._hosts[peer] = place[1]
        try:
            pipe = None if self._tls is None else TlsPipe(self._tls.calling, host.strip("[]"))
        except ValueError as error:
            self._note(peer, f"{host} is no name that a certificate could have: {error}")
            return
        try:
            sock = socket.socket(place[0], socket.SOCK_STREAM)
        except OSError as error:  # no descriptors are left, for now
            self._note(peer, f"cannot be called: {error}")
            return
        sock.setblocking(False)
        try:
            sock.connect((place[1], port))
        except BlockingIOError:
            pass  # under way: the selector says when
        except OSError as error:
            sock.close()
            self._note(peer, f"cannot be reached at {self._peers[peer]}: {error}")
            return
        initiator = Initiator(self._me, peer, self._nonce())
        link = self._add(sock, initiator, pipe)
        self._calling[link] = place[1]
        link.call()
        link.put(initiator.hello())
        self._want_write(link, True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_POLL):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # it ended before it was accepted, or there are no descriptors left
                self._note(None, f"cannot be accepted: {error}")
                return
            host, group, most = _plain(address[0]), self._others, OTHER_STRANGERS_MAX
            if host in self._hosts.values():
                group, most = self._known, KNOWN_STRANGERS_MAX
            if len(group) >= most:
                self.displaced += 1
                self._close(next(iter(group)), "closed to make room for a later one")
            sock.setblocking(False)
            pipe = None if self._tls is None else TlsPipe(self._tls.listening)
            group[self._add(sock, Acceptor(self._me, self._peers, self._nonce()), pipe)] = host

    def _add(self, sock: socket.socket, handshake: Initiator | Acceptor, pipe: TlsPipe | None) -> Link:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_MS)
        link = Link(sock, handshake, self._clock() + HANDSHAKE_SECONDS, pipe)
        self._selector.register(sock, selectors.EVENT_READ, link)
        return link

    def _leave(self, link: Link) -> str:
        """Its handshake is over; return the address at the other end."""
        return "".join([group.pop(link, "") for group in self._unproved()])

    def _note(self, peer: str | None, text: str) -> None:
        if peer is None:
            self._note_stranger(text)
        elif self.errors.get(peer) != text:
            self.errors[peer] = text
            log_event(LogEvent.RAFT_PEER_UNREACHABLE, peer=peer, reason=text)

    def _note_stranger(self, text: str) -> None:
        """Whoever it is may do this as often as he likes: the log has one line in a while."""
        self.errors["a stranger"] = text
        self._unsaid += 1
        now = self._clock()
        if now - self._said >= _STRANGERS_SAID_SECONDS:
            log_event(LogEvent.RAFT_PEER_REFUSED, count=self._unsaid, reason=text)
            self._said, self._unsaid = now, 0

    def _close(self, link: Link, reason: str) -> None:
        if not link.open:
            return
        link.open = False
        self._selector.unregister(link.sock)
        link.sock.close()
        peer = link.handshake.peer
        self._note(peer, reason)
        self._leave(link)
        if peer is not None and self._links.get(peer) is link:
            del self._links[peer]
            self._handler.disconnected(peer)

    def _established(self, link: Link) -> None:
        peer = link.handshake.peer
        if peer is None or link.handshake.session is None:
            raise RaftError("a connection was taken over before its handshake completed")
        older = self._links.get(peer)
        if older is not None:
            self._close(older, "replaced by a newer connection")
        self._hosts[peer] = self._leave(link)
        link.session = link.handshake.session
        self._links[peer] = link
        self.errors.pop(peer, None)
        if peer in self._retry:
            self._retry[peer] = (0.0, RETRY_MIN)
        self._handler.connected(peer)

    # bytes

    def _ready(self, link: Link, mask: int) -> None:
        if link.open and mask & selectors.EVENT_WRITE:
            self._write(link)
        if link.open and mask & selectors.EVENT_READ:
            self._read(link)

    def _want_write(self, link: Link, wanted: bool) -> None:
        if link.writing != wanted:
            link.writing = wanted
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
            self._selector.modify(link.sock, events, link)

    def _write(self, link: Link) -> None:
        try:
            left = link.write()
        except (OSError, PeerRefused) as error:
            self._close(link, f"connection lost: {error}")
            return
        self._want_write(link, left)

    def _read(self, link: Link) -> None:
        for _ in range(_RECEIVES_PER_POLL):
            if link.shaking:
                if not self._shakes_left:
                    return  # the selector says so again
                self._shakes_left -= 1
            try:
                data = link.sock.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._close(link, f"connection lost: {error}")
                return
            if not data:
                self._close(link, "connection closed by the peer")
                return
            self._feed(link, data)
            if len(link.incoming) >= _READ_BYTES and link.session and link.handshake.peer:
                self._handler.hearing(link.handshake.peer)
            if not link.open or len(data) < _READ_BYTES:
                return

    def _feed(self, link: Link, data: bytes) -> None:
        try:
            link.feed(data, self._scratch)
        except PeerRefused as error:
            self._refuse(link, error)
            return
        if link.waits and not link.writing:
            self._write(link)
        self._frames(link)
        if link.open and link.ended:
            self._close(link, "connection closed by the peer")

    def _frames(self, link: Link) -> None:
        try:
            while link.open and (frame := link.next_frame()) is not None:
                if link.session is not None and link.handshake.peer is not None:
                    self._handler.received(link.handshake.peer, link.session.open(frame))
                else:
                    self._shake(link, frame)
        except (WireError, PeerRefused) as error:
            self._refuse(link, error)

    def _shake(self, link: Link, frame: bytes) -> None:
        answer = link.handshake.feed(frame)
        if answer is not None:
            link.put(answer)
            self._write(link)
        if link.handshake.session is not None and link.open:
            self._established(link)

    def _refuse(self, link: Link, error: RaftError) -> None:
        if link.session is None and isinstance(link.handshake, Acceptor):
            link.put(refusal(str(error)))
            self._write(link)
        self._close(link, str(error))
