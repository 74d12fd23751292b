"""Asks one named server one question over HTTP, without looking for a leader and without trying again.

For callers that need to know *which* server answered: the local cluster, the drills and the CLI's view of every master.
Everybody else uses common/net/control.py, which follows the leader. Blocking; safe to use from any thread but that of
the client's loop (runtime.py), which does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from holdfast.client.connection.runtime import runtime
from holdfast.common.errors import RetryError
from holdfast.common.net.answers import not_master
from holdfast.common.net.http_client import HttpClient
from holdfast.common.net.methods import METHODS
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.strict_json import read_json

Reply = TypeVar("Reply", bound=Message)


class DirectConnection:
    """One way to one server, whose connection is kept open between questions. It takes no detours of drills."""

    def __init__(self, address: str, seconds: float = 5.0, credentials: CredentialsProvider | None = None) -> None:
        """`address` is "host:port"; `seconds` bounds every single question; `credentials`: of a secured cluster."""
        self.address = address
        self._seconds = seconds
        self._client = HttpClient(credentials, detours=False)

    def ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """Call `method` ("Service/Method") and return its answer.

        Raises RetryError when the server cannot be reached or does not answer in time, or is no master; NotLeaderError
        when it is not the leader, and otherwise the error of its status.
        """
        data, path, found = request.SerializeToString(), METHODS[method].path, reply()
        try:
            found.ParseFromString(self._answer(lambda: self._client.call(self.address, path, data, self._seconds)))
        except DecodeError as error:
            raise not_master(self.address, f"{method}: this is not its reply: {error}") from None
        return found

    def get(self, path: str) -> str:
        """Return the body of a page such as /metrics. Raises RetryError."""
        return self._answer(lambda: self._client.get(self.address, path, self._seconds)).decode(errors="replace")

    def close(self) -> None:
        """Close the connection, for good."""
        runtime().run(self._client.close())

    @staticmethod
    def _answer(begin: Callable[[], asyncio.Future[bytes]]) -> bytes:
        async def answered() -> bytes:
            return await begin()

        return runtime().run(answered())


def ask(
    address: str,
    method: str,
    request: Message,
    reply: type[Reply],
    seconds: float = 5.0,
    credentials: CredentialsProvider | None = None,
) -> Reply:
    """Ask once on a connection of its own; raises as DirectConnection.ask."""
    with closing(DirectConnection(address, seconds, credentials)) as connection:
        return connection.ask(method, request, reply)


def worker_status(address: str, seconds: float = 5.0, credentials: CredentialsProvider | None = None) -> dict[str, Any]:
    """The /status of the worker whose HTTP port is at `address`. Raises RetryError."""
    try:
        with closing(DirectConnection(address, seconds, credentials)) as connection:
            said = read_json(connection.get("/status").encode())
        if not isinstance(said, dict):
            raise ValueError("it is not an object")
        return said
    except ValueError as error:
        raise RetryError(f"{address}: /status is not that of a worker: {error}") from error
