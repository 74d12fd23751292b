"""Asks one named server one question over HTTP, without looking for a leader and without trying again.

For those who must know *which* master answered: the local cluster, the drills and the CLI's view of every master.
Everybody else uses common/net/control.py, which follows the leader. Blocking; safe to use from any thread.
"""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from holdfast.common.errors import ProtocolError, RetryError
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX
from holdfast.common.net.answers import not_master, read_http
from holdfast.common.security.credentials import CredentialsProvider

Reply = TypeVar("Reply", bound=Message)


class DirectConnection:
    """One HTTP connection to one server, kept open between questions. Not thread-safe."""

    def __init__(self, address: str, seconds: float = 5.0, shown: CredentialsProvider | None = None) -> None:
        """`address` is "host:port"; `seconds` bounds every single wait for the server; `shown` is what a secured
        cluster wants to see."""
        self.address = address
        host, _, port = address.rpartition(":")
        self._shown = shown
        self._connection = (
            http.client.HTTPConnection(host, int(port), timeout=seconds)
            if shown is None
            else http.client.HTTPSConnection(host, int(port), timeout=seconds, context=shown.context)
        )

    def ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """Call `method` ("Service/Method") and return its answer.

        Raises RetryError when the server cannot be reached or does not answer in time, or is no master; NotLeaderError
        when it does not lead, and otherwise the error that its status stands for.
        """
        body = json_format.MessageToJson(request, indent=None).encode()
        status, headers, data = self._post(f"/holdfast.v1.{method}", body)
        told = {name.lower(): value for name, value in headers.items()}
        text = read_http(self.address, status, told, data, "").decode(errors="replace")
        try:
            return json_format.Parse(text, reply(), ignore_unknown_fields=True)
        except json_format.ParseError as error:
            raise not_master(self.address, f"{method}: this is not its reply: {error}") from None

    def get(self, path: str) -> str:
        """Return the body of a page such as /metrics. Raises RetryError."""
        status, _, data = self._exchange("GET", path, b"")
        if status != http.client.OK:
            raise RetryError(f"{self.address} answers {path} with HTTP status {status}")
        return data.decode(errors="replace")

    def close(self) -> None:
        """Close the connection; the next question opens it again."""
        self._connection.close()

    def _post(self, path: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        return self._exchange("POST", path, body)

    def _exchange(self, verb: str, path: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            headers = {"Content-Type": "application/json"}
            if self._shown is not None:
                headers["Authorization"] = f"Bearer {self._shown.token}"
            self._connection.request(verb, path, body or None, headers)
            if self._connection.sock is not None:
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = self._connection.getresponse()
            data = answer.read(CONTROL_MESSAGE_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RetryError(f"{self.address} does not answer ({type(error).__name__}: {error})") from None
        if len(data) > CONTROL_MESSAGE_BYTES_MAX:
            self._connection.close()
            raise ProtocolError(f"{self.address} answers with more than {CONTROL_MESSAGE_BYTES_MAX} bytes")
        return answer.status, answer.headers, data


def ask(
    address: str,
    method: str,
    request: Message,
    reply: type[Reply],
    seconds: float = 5.0,
    shown: CredentialsProvider | None = None,
) -> Reply:
    """Ask once on a connection of its own; raises as DirectConnection.ask."""
    connection = DirectConnection(address, seconds, shown)
    try:
        return connection.ask(method, request, reply)
    finally:
        connection.close()


def worker_status(address: str, seconds: float = 5.0, shown: CredentialsProvider | None = None) -> dict[str, Any]:
    """What the worker whose HTTP port is at `address` says of itself at /status. Raises RetryError."""
    connection = DirectConnection(address, seconds, shown)
    try:
        said: dict[str, Any] = json.loads(connection.get("/status"))
    finally:
        connection.close()
    return said
