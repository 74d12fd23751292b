"""How commands ask masters.

Rules: a user who waits gets the reason after SAY_SECONDS, in a sentence on standard error, and what does not answer
ends the command within ten seconds, of which the start of the process takes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.common.errors import ForbiddenError, HoldfastError, TokenExpiredError, UnauthenticatedError
from holdfast.common.security.credentials import Credentials
from holdfast.common.system.tasks import awaited
from holdfast.common.visible import visible

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from holdfast.common.net.control import ControlClient

Result = TypeVar("Result")

#: A person waits; long enough for an election, short enough not to look hung.
ANSWER_SECONDS_MAX = 8.0
#: The same for one master of several, which may be away.
MASTER_SECONDS_MAX = 2.0
#: Healthy masters answer sooner; nobody looks at nothing for longer.
SAY_SECONDS = 1.0


def with_masters(endpoints: str, question: Callable[[ControlClient], Awaitable[Result]]) -> Result:
    """Return what `question` makes of the masters' answers. Raises HoldfastError."""
    from holdfast.common.net.control import ControlClient

    async def run() -> Result:
        # What the client would log is told here, in a sentence.
        async with ControlClient(endpoints, Credentials.from_environment(), log_missing=False) as client:
            return await question(client)

    return asyncio.run(run())


async def answer(client: ControlClient, method: str, request: Message) -> Any:
    """Return what the leader answers. Raises HoldfastError."""
    with waiting_shown(lambda: f"no answer yet, asking for {ANSWER_SECONDS_MAX:g} s: {client.waits_for()}"):
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

    asked = {address: awaited(one(address)) for address in addresses}

    def silent() -> str:
        names = ", ".join(address for address, reply in asked.items() if not reply.done())
        return f"no answer yet, asking for {seconds_max:g} s: {names}"

    with waiting_shown(silent):
        await asyncio.gather(*asked.values())
    return {address: reply.result() for address, reply in asked.items()}


def refused(answer: object) -> bool:
    """Whether a master answered, and refused this caller."""
    return isinstance(answer, UnauthenticatedError | TokenExpiredError | ForbiddenError)


@contextmanager
def waiting_shown(text: Callable[[], str]) -> Iterator[None]:
    """Tell on standard error why somebody waits, once, if it lasts."""

    def tell() -> None:
        click.echo(f"holdfast: {visible(text())}", err=True)

    later = asyncio.get_running_loop().call_later(SAY_SECONDS, tell)
    try:
        yield
    finally:
        later.cancel()
