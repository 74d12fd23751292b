"""The leading master killed, or stopped and continued, while clients give commands.

Killed: how long from the kill until the next command is accepted. Stopped (SIGSTOP): others elect a new leader and
accept commands; when the old one continues, it must not answer from its old state. It is asked on connections whose
questions lay in its queue while it slept, and on new ones.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from itertools import count
from typing import Self, TypeVar

from google.protobuf.message import Message

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.connection.direct import DirectConnection
from holdfast.common.errors import ForbiddenError, HoldfastError, RetryError
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.tools.bare import register_application, register_shuffle, shuffle_key
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.report import Report, Step

Reply = TypeVar("Reply", bound=Message)

#: The longest that clients run before a kill.
_RUN_SECONDS = 0.6
#: What a failover may take at p99; see docs/operate/failure_model.md.
FAILOVER_SECONDS = 1.5
FAILOVER = "failover: from kill to the next accepted command"
_COMMAND_SECONDS_MAX = 120.0
_CLIENTS = 3


class Commands:
    """Clients that register shuffles in a row; records when each accepted command was sent and answered."""

    def __init__(self, cluster: LocalCluster, rng: random.Random) -> None:
        self.instance = rng.randbytes(16)
        #: what the application's owner shows
        self.owner: Credentials | None = None
        self._cluster = cluster
        self._clients: list[ControlClient] = []
        self._numbers = count(1)
        self._accepted = asyncio.Condition()
        self._last_sent = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Register the application and begin."""
        endpoints = self._cluster.endpoints
        async with ControlClient(endpoints, self._cluster.credentials) as admin:
            reply = await register_application(admin, self.instance, "drill", deadline_s=_COMMAND_SECONDS_MAX)
        self.owner = servers.owner(self._cluster, reply)
        self._clients = [ControlClient(endpoints, self.owner) for _ in range(_CLIENTS)]
        self._tasks = [awaited(self._run(client)) for client in self._clients]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    async def accepted_after(self, moment: float) -> float:
        """Wait until a command sent after `moment` is accepted; return when it was. Raises TimeoutError."""
        async with asyncio.timeout(_COMMAND_SECONDS_MAX), self._accepted:
            await self._accepted.wait_for(lambda: self._last_sent > moment or any(task.done() for task in self._tasks))
        for task in self._tasks:
            if task.done():
                task.result()
        return time.monotonic()

    async def register(self) -> int:
        """Register a new shuffle and drop it again at some later time; returns its number."""
        return await self._register(self._clients[0])

    def key(self, shuffle: int) -> pb.ShuffleKey:
        """The key of a shuffle that `register` made."""
        return shuffle_key(self.instance, shuffle)

    async def _run(self, client: ControlClient) -> None:
        while True:
            sent = time.monotonic()
            shuffle = await self._register(client)
            async with self._accepted:
                self._last_sent = max(self._last_sent, sent)
                self._accepted.notify_all()
            request = pb.UnregisterShuffleRequest(key=self.key(shuffle), holder=self.instance)
            await client.call("Shuffles/UnregisterShuffle", request, deadline_s=_COMMAND_SECONDS_MAX)

    async def _register(self, client: ControlClient) -> int:
        shuffle = next(self._numbers)
        await register_shuffle(client, self.instance, shuffle, 4, maps=1, deadline_s=_COMMAND_SECONDS_MAX)
        return shuffle


async def drill_kill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Kill the leader `report.rounds` times. Raises DrillError when something does not happen in time."""
    report.limits[FAILOVER] = FAILOVER_SECONDS
    async with Commands(cluster, rng) as commands:
        for _ in range(report.rounds):
            old = await servers.leader(cluster)
            await asyncio.sleep(rng.uniform(0.0, _RUN_SECONDS))
            moment = await servers.kill([old], report)
            with report.until("no command was accepted after the leader was killed"):
                seconds = await commands.accepted_after(moment) - moment
            report.time(FAILOVER, seconds)
            report.check("a new leader accepts commands", True, "")
            await servers.start([old])
            with report.until("the killed master does not catch up"):
                await caught_up(cluster, old)
            report.done += 1
            step(f"{seconds:.2f} s to the next accepted command")
    await agree_all(cluster, report)


async def drill_stop(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Stop and continue the leader `report.rounds` times. Raises DrillError when something does not happen in time."""
    async with Commands(cluster, rng) as commands:
        for _ in range(report.rounds):
            old = await servers.leader(cluster)
            await asyncio.sleep(rng.uniform(0.0, _RUN_SECONDS))
            await _stop_and_ask(old, report, rng, commands)
            with report.until("the stopped master does not catch up"):
                await caught_up(cluster, old)
            report.done += 1
            step(f"{report.failed} stale answers")
    await agree_all(cluster, report)


async def _stop_and_ask(old: Server, report: Report, rng: random.Random, commands: Commands) -> None:
    # With security some questions are an admin's, and some the owner's.
    credentials = (old.credentials, commands.owner)
    waiting = [DirectConnection(old.address, 10.0, credentials[number % 2]) for number in range(3)]
    for connection in waiting:  # opened while it still answers, so that questions can lie in its queue
        await asyncio.to_thread(connection.ask, "Shuffles/Discover", pb.DiscoverRequest(), pb.DiscoverReply)
    old.kill(signal.SIGSTOP)
    report.kills += 1
    report.event(f"stopped {old.name}")
    moment = time.monotonic()
    try:
        with report.until("no command was accepted after the leader was stopped"):
            accepted = await commands.accepted_after(moment)
            report.time("from stop to the next accepted command", accepted - moment)
            new = await commands.register()
        questions = [awaited(ask_for_new(connection, new, commands, report)) for connection in waiting]
        await asyncio.sleep(rng.uniform(0.0, 0.2))
    finally:
        old.kill(signal.SIGCONT)
        report.event(f"continued {old.name}")
    with report.until("the stopped master does not answer after it was continued"):
        async with asyncio.timeout(20.0):
            await asyncio.gather(*questions)
            fresh = DirectConnection(old.address, credentials=old.credentials)
            await ask_for_new(fresh, new, commands, report)
    for connection in (*waiting, fresh):
        connection.close()


async def ask_for_new(connection: DirectConnection, new: int, commands: Commands, report: Report) -> None:
    """Ask one master for what it cannot have unless it follows the new leader; any answer must have it."""
    listing = pb.ListShufflesRequest(instance=commands.instance, limit=1_000_000)
    listed = await _answer(connection, "Admin/ListShuffles", listing, pb.ListShufflesReply, report)
    if listed is not None:
        seen = any(shuffle.key.shuffle == new for shuffle in listed.shuffles)
        report.check("no stale answer", seen, "ListShuffles of the old leader lacks what was accepted meanwhile")
    check = pb.CheckShufflesRequest(worker=1, keys=[commands.key(new)])
    checked = await _answer(connection, "Registry/CheckShuffles", check, pb.CheckShufflesReply, report)
    if checked is not None:
        report.check(
            "no stale answer",
            not checked.dropped and not checked.unheard,
            "CheckShuffles of the old leader would delete new data",
        )
    await _answer(
        connection, "Shuffles/GetManifest", pb.GetManifestRequest(key=commands.key(new)), pb.GetManifestReply, report
    )


async def _answer(
    connection: DirectConnection, method: str, request: Message, reply: type[Reply], report: Report
) -> Reply | None:
    """The answer, or None if the master refused to speak for the cluster; to deny the shuffle is stale too."""
    stale = {Status.UNKNOWN_SHUFFLE, Status.UNKNOWN_GENERATION, Status.APPLICATION_GONE}
    try:
        found = await asyncio.to_thread(connection.ask, method, request, reply)
    except RetryError as error:
        report.counts[f"old leader: {error.status.name}"] += 1
        report.check("no stale answer", True, "")
    except ForbiddenError:
        report.counts["old leader: not asked, with this token"] += 1
    except HoldfastError as error:
        report.check("no stale answer", error.status not in stale, f"{method} of the old leader says {error}")
    else:
        report.counts["old leader: answered with the new state"] += 1
        return found
    return None


async def caught_up(cluster: LocalCluster, master: Server) -> None:
    """Wait until the master has applied what the leader had applied when asked. Raises TimeoutError."""
    async with asyncio.timeout(servers.AGREE_SECONDS_MAX):
        first = await servers.status(await servers.leader(cluster))
        wanted = first.applied_index if first is not None else 0
        while True:
            reply = await servers.status(master)
            if reply is not None and reply.applied_index >= wanted:
                return
            await asyncio.sleep(0.02)


async def agree_all(cluster: LocalCluster, report: Report) -> None:
    """Check that masters which have applied the same have the same state. Raises DrillError."""
    with report.until("the masters do not reach the same applied index"):
        replies = await servers.agree(cluster.masters)
    same = len({reply.state_hash for reply in replies}) == 1
    report.check("equal state hashes", same, f"different states at index {replies[0].applied_index}")
