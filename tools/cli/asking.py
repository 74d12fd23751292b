"""How commands ask masters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.common.errors import HoldfastError
from holdfast.common.security.credentials import Credentials

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from holdfast.common.net.control import ControlClient

Result = TypeVar("Result")

#: A person waits; long enough for an election, short enough not to look hung.
ANSWER_SECONDS_MAX = 10.0
#: The same for one master of several, which may be away.
MASTER_SECONDS_MAX = 2.0


def with_masters(endpoints: str, question: Callable[[ControlClient], Awaitable[Result]]) -> Result:
    """Return what `question` makes of the masters' answers. Raises HoldfastError."""
    from holdfast.common.net.control import ControlClient

    async def run() -> Result:
        async with ControlClient(endpoints, Credentials.from_environment()) as client:
            return await question(client)

    return asyncio.run(run())


async def answer(client: ControlClient, method: str, request: Message) -> Any:
    """Return what the leader answers. Raises HoldfastError."""
    return await client.call(method, request, deadline_s=ANSWER_SECONDS_MAX)


def ask(endpoints: str, method: str, request: Message) -> Any:
    """Return what the leader of these masters answers. Raises HoldfastError."""
    return with_masters(endpoints, lambda client: answer(client, method, request))


async def each_master(
    client: ControlClient,
    addresses: Collection[str],
    method: str,
    request: Callable[[str], Message],
    seconds_max: float = MASTER_SECONDS_MAX,
) -> dict[str, Any]:
    """Return what each of these masters answers for itself, or the error, by its address."""

    async def one(address: str) -> Any:
        try:
            return await client.ask(address, method, request(address), timeout_s=seconds_max)
        except HoldfastError as error:
            return error

    return dict(zip(addresses, await asyncio.gather(*map(one, addresses)), strict=True))
