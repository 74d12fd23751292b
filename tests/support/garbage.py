"""Whatever may listen at an address where a master or worker was: proxies, other clusters, silence and noise.

One listener on loopback; the test says what it does with the next connections. Runs in a thread of its own, so that
processes and blocking calls can be fed as well.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status

_HTML = b"<html><body><h1>upstream connect error or disconnect/reset before headers</h1></body></html>"
_JSON = "application/json"
_PROTO = "application/proto"


def http(status: int, body: bytes, kind: str = "text/html", length: int = -1, **headers: str) -> bytes:
    """An answer over HTTP/1.1."""
    size = len(body) if length < 0 else length
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n{more}\r\n".encode() + body


def _other_cluster() -> bytes:
    """What the leader of another cluster says to Shuffles/Discover."""
    own = pb.MasterInfo(name="other", http="127.0.0.1:1", leader=True)
    reply = pb.DiscoverReply(cluster_id="another", name="other", leader_http="127.0.0.1:1", masters=[own])
    return http(200, reply.SerializeToString(), _PROTO, Holdfast_Cluster="another")


def _refusal(status: Status, **headers: str) -> bytes:
    body = f'{{"code": "not_found", "message": "{status.name}"}}'.encode()
    return http(404, body, _JSON, -1, Holdfast_Status=str(int(status)), **headers)


#: What is answered to any request, by the name of who does; None: the connection is dealt with otherwise.
GARBAGE: dict[str, bytes | None] = {
    "a proxy that says 404": http(404, _HTML),
    "a mesh that says 503": http(503, _HTML),
    "a balancer that says 502": http(502, b"", "text/plain"),
    "a proxy that wants a password": http(401, _HTML, WWW_Authenticate="Basic"),
    "a page": http(200, _HTML),
    "an empty page": http(200, b""),
    "an empty message": http(200, b"", _PROTO),
    "JSON of somebody else": http(200, b"{}", _JSON),
    "JSON that is cut": http(200, b'{"leaderHttp": "127.', _JSON, 400),
    "a body that is cut": http(200, b"\x0a", _PROTO, 100),
    "a redirection": http(302, b"", "text/plain", Location="http://127.0.0.1:1/"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\r\n",
    "TLS": bytes([21, 3, 3, 0, 2, 2, 40]) * 3,
    "noise": bytes(range(256)) * 8,
    "the leader of another cluster": _other_cluster(),
    "another cluster, where nobody is known": _refusal(Status.APPLICATION_GONE, Holdfast_Cluster="another"),
    "another cluster, where workers clash": _refusal(Status.WORKER_CONFLICT, Holdfast_Cluster="another"),
    "another cluster, where no token is good": _refusal(Status.UNAUTHENTICATED, Holdfast_Cluster="another"),
    "a status of nobody": _refusal(Status.APPLICATION_GONE),
    "hanging up": b"",
    "a reset": None,
    "silence": None,
}
SILENT = "silence"


class Listener:
    """Plays garbage at an address until it is closed. `seen` counts connections that sent something."""

    def __init__(self, kind: str, port: int = 0) -> None:
        self.kind = kind
        self.seen = 0
        self._socket = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port = int(self._socket.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="garbage", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and drop what is open."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in list(self._open):
            self._end(each)
        self._thread.join()

    def _serve(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.add(connection)
            threading.Thread(target=self._play, args=(connection,), daemon=True).start()

    def _play(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(30)
            if not connection.recv(65_536):
                return
            self.seen += 1
            if self.kind == SILENT:
                while connection.recv(65_536):
                    pass
            elif self.kind == "a reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                connection.sendall(GARBAGE[self.kind] or b"")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
        except OSError:
            pass  # the other side went first, or the test ended
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            if self._closed:
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
