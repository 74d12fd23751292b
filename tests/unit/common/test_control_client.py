"""The control client against masters that follow a script: who is asked, in which order, and when it gives up.

Row 40 of the acceptance list (the not-leader reply with and without an address, dead masters, time-outs). Real masters
are in tests/cluster/test_masters.py; here stand scripts, since a real master cannot be told to answer wrongly.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.common.errors import (
    ApplicationGoneError,
    ConfigError,
    GiveUpError,
    HoldfastError,
    NotMasterError,
    RetryError,
)
from holdfast.common.log_events import LogEvent
from holdfast.common.net.control import COMMANDS_AT_ONCE_MAX, ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.system import waiting
from holdfast.common.system.ports import free_ports
from tests.support.logged import logged
from tests.support.waiting import wait_until_async

RENEW = "Shuffles/RenewLease"
ATTACH = "Shuffles/Attach"


class Scripted:
    """A master of which the test decides what it says. `asked` are the calls it got, Discover left out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.asked: list[bytes] = []
        #: how often it was asked who leads
        self.looks = 0
        self.leader: Scripted | None = None
        #: what to say to the next calls: (status, leader hint), or None for silence; then OK
        self.answers: list[tuple[Status, str] | None] = []
        self.reply: bytes = b""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._silent = asyncio.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._silent.set()
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                body = await reader.readexactly(int(head.split("Content-Length: ")[1].split("\r\n")[0]))
                if "/Discover " in head:
                    self.looks += 1
                    writer.write(_http(200, {}, self._discover()))
                    continue
                self.asked.append(body)
                said = self.answers.pop(0) if self.answers else (Status.OK, "")
                if said is None:
                    await self._silent.wait()
                    return
                status, hint = said
                headers = {"Holdfast-Status": str(int(status)), "Holdfast-Leader": hint}
                reported = f'{{"code": "", "message": "{status.name}"}}'.encode()
                writer.write(_http(200, {}, self.reply) if status is Status.OK else _http(503, headers, reported))
        except (EOFError, ConnectionError, asyncio.CancelledError):
            return  # the client closed the connection, or the test ends
        finally:
            self._open.discard(writer)
            writer.close()

    def _discover(self) -> bytes:
        leader = self.leader.address if self.leader else ""
        own = pb.MasterInfo(name=self.name, http=self.address, leader=self.leader is self)
        reply = pb.DiscoverReply(cluster_id="c", name=self.name, leader_http=leader, masters=[own], raft_index=7)
        return reply.SerializeToString()


def _http(status: int, headers: dict[str, str], body: bytes) -> bytes:
    headers = {"Holdfast-Cluster": "c", **headers, "Content-Length": str(len(body))}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return f"HTTP/1.1 {status} said\r\n{''.join(lines)}\r\n".encode() + body


@contextlib.asynccontextmanager
async def masters(leader: int | None = 0) -> AsyncIterator[tuple[list[Scripted], ControlClient]]:
    """Three scripted masters of which one leads, and a client that knows all three."""
    three = [Scripted(f"m{number}") for number in range(3)]
    for each in three:
        await each.start()
    for each in three:
        each.leader = three[leader] if leader is not None else None
    try:
        async with ControlClient([each.address for each in three]) as client:
            yield three, client
    finally:
        for each in three:
            await each.stop()


def run(story: Callable[[list[Scripted], ControlClient], Awaitable[None]], leader: int | None = 0) -> None:
    async def body() -> None:
        async with masters(leader) as (three, client):
            await story(three, client)

    asyncio.run(body())


def counts(three: list[Scripted]) -> list[int]:
    return [len(each.asked) for each in three]


def test_leader_is_asked_at_once():
    """The client asks who leads, then only the leader, for every call."""

    async def story(three, client):
        for _ in range(3):
            await client.call(RENEW, pb.RenewLeaseRequest())
        assert counts(three) == [0, 3, 0]
        assert (client.cluster_id, client.raft_index) == ("c", 7)

    run(story, leader=1)


def test_a_leader_that_is_slow_is_no_lack_of_one():
    """Who waits for a leader that was found hears that it has not answered, and not that there is none."""

    async def story(three, client):
        assert "there is no leader" in client.waits_for()
        three[1].answers = [None]
        call = asyncio.ensure_future(client.call(RENEW, pb.RenewLeaseRequest()))
        await wait_until_async(lambda: three[1].asked, "the leader to be asked")
        assert client.waits_for() == f"the leader, {three[1].address}, has not answered"
        call.cancel()

    run(story, leader=1)


def test_not_leader_with_an_address_is_followed():
    """A hint is followed at once and kept for the calls after it."""

    async def story(three, client):
        three[0].answers = [(Status.NOT_LEADER, three[2].address)]
        await client.call(RENEW, pb.RenewLeaseRequest())
        await client.call(RENEW, pb.RenewLeaseRequest())
        assert counts(three) == [1, 0, 2]

    run(story, leader=0)


def test_not_leader_without_an_address_starts_a_search():
    """All masters are asked who leads until one does."""

    async def story(three, client):
        await client.call(RENEW, pb.RenewLeaseRequest())
        three[0].answers = [(Status.NOT_LEADER, "")]
        for each in three:
            each.leader = three[1]
        await client.call(RENEW, pb.RenewLeaseRequest())
        assert counts(three) == [2, 1, 0]

    run(story, leader=0)


def test_hints_in_a_circle_end():
    """Two masters that name each other: the client searches in between, and gives up at its deadline."""

    async def story(three, client):
        three[0].answers = [(Status.NOT_LEADER, three[1].address)] * 1000
        three[1].answers = [(Status.NOT_LEADER, three[0].address)] * 1000
        with pytest.raises(RetryError, match=r"NOT_LEADER|there is no leader"):
            await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=2.0)
        assert sum(counts(three)) < 200

    run(story, leader=0)


def test_dead_leader_is_replaced():
    """A refused connection sends the client to the next leader; the call is answered once."""

    async def story(three, client):
        await client.call(RENEW, pb.RenewLeaseRequest())
        await three[0].stop()
        client._http._idle.clear()  # as after kill -9: no connection is left
        for each in three:
            each.leader = three[2]
        await client.call(RENEW, pb.RenewLeaseRequest())
        assert counts(three) == [1, 0, 1]

    run(story, leader=0)


def test_silent_leader_is_left_when_another_leads():
    """A leader that does not answer (SIGSTOP) is left once another one leads; the call keeps its number."""

    async def story(three, client):
        three[0].answers = [None]
        call = asyncio.ensure_future(client.call(ATTACH, pb.AttachRequest(name="a")))
        while not three[0].asked:
            await asyncio.wait((call,), timeout=0.01)
        for each in three[1:]:
            each.leader = three[1]
        await call
        first, second = (pb.AttachRequest.FromString(each.asked[0]).call for each in three[:2])
        assert first == second
        assert (first.number, first.raft_index, len(first.client)) == (1, 7, 16)

    run(story, leader=0)


@pytest.mark.parametrize("leader", [None, 0], ids=["no leader", "silent leader"])
def test_deadline_is_kept(leader):
    """With nobody to answer the call ends at its deadline with RetryError, and says what it waited for."""

    async def story(three, client):
        three[0].answers = [None]
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(RetryError, match=r"no leader|did not answer"):
            await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=2.0)
        assert loop.time() - before >= 0.3

    run(story, leader=leader)


@pytest.mark.parametrize("method", [RENEW, ATTACH])
def test_a40_a_call_that_lasts_says_what_it_waits_for(monkeypatch, caplog, method):
    """While a master does not answer the log says what is waited for; the caller may say it in words of its own."""
    monkeypatch.setattr(waiting, "SAY_SECONDS", 0.01)

    async def story(three, client):
        three[0].answers = [None]
        request = pb.RenewLeaseRequest() if method == RENEW else pb.AttachRequest()
        words = "" if method == RENEW else "the end of the night"
        call = asyncio.create_task(client.call(method, request, 600.0, words))
        reported = words or f"the masters' answer to {method}"
        await wait_until_async(
            lambda: reported in [each["what"] for each in logged(caplog, LogEvent.WAIT_LONG)], "the line in the log"
        )
        call.cancel()
        await asyncio.wait([call])

    run(story)


def test_all_masters_dead():
    """Nobody listens: RetryError at the deadline, naming the endpoints."""
    endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))

    async def body():
        async with ControlClient(endpoints) as client:
            assert set((await client.masters()).values()) == {None}
            with pytest.raises(RetryError, match=endpoints.split(",")[2] + ": connection refused"):
                await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=2.0)

    asyncio.run(body())


def test_a14_a_name_that_is_not_looked_up_holds_up_no_other_master(monkeypatch):
    """The name server says nothing of the first endpoint, round after round, while there is no leader yet: once there
    is one, whose name has to be looked up anew, it is found."""
    gate, system = threading.Event(), socket.getaddrinfo

    def look_up(host, *how, **more):
        if host == "silent.example":
            gate.wait()
        return system(host, *how, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def body():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        master = Scripted("m1")
        await master.start()
        port = master.address.rpartition(":")[2]
        master.address = f"localhost:{port}"
        try:
            async with ControlClient([f"silent.example:{port}", master.address]) as client:
                call = asyncio.create_task(client.call(RENEW, pb.RenewLeaseRequest(), 600.0))
                await wait_until_async(lambda: master.looks >= 4, "some rounds of the search")
                for writer in list(master._open):
                    writer.transport.abort()
                master.leader = master
                await wait_until_async(call.done, "the call to be answered")
        finally:
            gate.set()
            await master.stop()

    asyncio.run(body())


@pytest.mark.parametrize("count", [1, 2])
def test_endpoints_that_name_no_master_end_the_call_at_once(count: int):
    """Unknown hosts and servers that are no masters: each is told with its cause, long before the deadline."""

    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 17\r\n\r\nthis is a printer")
        writer.close()

    async def body():
        async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with ControlClient([address, "256.256.256.256:1"][:count]) as client, asyncio.timeout(60):
                with pytest.raises(NotMasterError) as caught:
                    await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=300)
        assert f"{address}: answers, but is no master: this is a printer" in str(caught.value)
        assert ("256.256.256.256:1: unknown host" in str(caught.value)) == (count == 2)

    asyncio.run(body())


def test_one_endpoint_that_may_come_is_waited_for():
    """An unknown host beside an address that refuses: a master may start there, so the call lasts to its deadline."""
    (port,) = free_ports(1)

    async def body():
        async with ControlClient(f"256.256.256.256:1,127.0.0.1:{port}") as client:
            loop = asyncio.get_running_loop()
            before = loop.time()
            with pytest.raises(RetryError, match=f"unknown host; 127.0.0.1:{port}: connection refused"):
                await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=2.0)
            assert loop.time() - before >= 0.3

    asyncio.run(body())


def test_retries_keep_the_number_and_new_calls_grow_it():
    """BUSY and OUTCOME_UNKNOWN are tried again under the same number; the next call has the next one."""

    async def story(three, client):
        three[0].answers = [(Status.BUSY, ""), (Status.OUTCOME_UNKNOWN, ""), (Status.UNAVAILABLE, "")]
        await client.call(ATTACH, pb.AttachRequest(name="a"))
        await client.call(ATTACH, pb.AttachRequest(name="a"))
        assert [pb.AttachRequest.FromString(each).call.number for each in three[0].asked] == [1, 1, 1, 1, 2]

    run(story)


def test_numbers_under_way_stay_close_together():
    """While one call is not answered, later ones wait before the masters could forget it."""

    async def story(three, client):
        three[0].answers = [None]
        calls = [asyncio.ensure_future(client.call(ATTACH, pb.AttachRequest(name="a"))) for _ in range(200)]
        await wait_until_async(lambda: len(three[0].asked) >= COMMANDS_AT_ONCE_MAX, "all calls that may be under way")
        numbers = [pb.AttachRequest.FromString(each).call.number for each in three[0].asked]
        assert sorted(numbers) == list(range(1, COMMANDS_AT_ONCE_MAX + 1))
        for each in three[1:]:
            each.leader = three[1]
        await asyncio.gather(*calls)
        again = [pb.AttachRequest.FromString(each).call.number for each in three[1].asked]
        assert set(numbers) | set(again) == set(range(1, 201))

    run(story)


def test_refusals_are_raised_at_once():
    """What no retry changes is raised as its class, after one try."""

    async def story(three, client):
        three[0].answers = [(Status.APPLICATION_GONE, ""), (Status.UNKNOWN_SHUFFLE, ""), (Status.NOT_COMMITTED, "")]
        with pytest.raises(ApplicationGoneError):
            await client.call(RENEW, pb.RenewLeaseRequest())
        with pytest.raises(GiveUpError) as caught:
            await client.call(RENEW, pb.RenewLeaseRequest())
        assert caught.value.status is Status.UNKNOWN_SHUFFLE
        with pytest.raises(RetryError) as waited:
            await client.call(RENEW, pb.RenewLeaseRequest())
        assert waited.value.status is Status.NOT_COMMITTED
        assert counts(three) == [3, 0, 0]

    run(story)


def test_forgotten_client_id_is_drawn_anew_only_for_a_first_try():
    """CALL_TOO_OLD at the first try: another id. After a try whose outcome is unknown: the caller is told."""

    async def story(three, client):
        three[0].answers = [
            (Status.CALL_TOO_OLD, ""),
            (Status.OK, ""),
            (Status.OUTCOME_UNKNOWN, ""),
            (Status.CALL_TOO_OLD, ""),
        ]
        await client.call(ATTACH, pb.AttachRequest(name="a"))
        with pytest.raises(GiveUpError) as caught:
            await client.call(ATTACH, pb.AttachRequest(name="a"))
        assert caught.value.status is Status.CALL_TOO_OLD
        ids = [pb.AttachRequest.FromString(each).call.client for each in three[0].asked]
        assert ids[0] != ids[1] == ids[2] == ids[3]

    run(story)


def test_masters_of_another_cluster_are_not_listened_to():
    """Once a cluster has answered, a master of another one at a known address is as good as dead."""

    async def story(three, client):
        await client.call(RENEW, pb.RenewLeaseRequest())
        client.cluster_id = "other"
        client._leader = ""
        with pytest.raises(RetryError, match="there is no leader"):
            await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=2.0)

    run(story)


def test_answers_that_are_none_are_errors():
    """A body that is no reply is ProtocolError, not a wrong reply."""

    async def story(three, client):
        three[0].reply = b"\xff\xff\xff"
        with pytest.raises(HoldfastError, match=r"not its reply|there is no leader"):
            await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=2.0)

    run(story)


def test_child_of_a_fork_draws_its_own_id():
    """After a fork parent and child number their calls under different ids."""

    async def story(three, client):
        await client.call(ATTACH, pb.AttachRequest(name="a"))
        client._pid = os.getpid() + 1  # as a child sees it
        await client.call(ATTACH, pb.AttachRequest(name="a"))
        calls = [pb.AttachRequest.FromString(each).call for each in three[0].asked]
        assert calls[0].client != calls[1].client
        assert [call.number for call in calls] == [1, 1]

    run(story)


#: No name server has these names, and no header carries them.
UNHEARD_OF = ["bücher:7070", "a..b:1", "a:٣", "a:1\ud800", "a\0:1", "::1:7070", "x" * 254 + ":1", [7]]


@pytest.mark.parametrize("endpoints", ["", " , ", "host", "host:port", ":7070", "host:70700", *UNHEARD_OF])
def test_malformed_endpoints_are_refused(endpoints):
    """What is no list of host:port is ConfigError that says what to write."""
    with pytest.raises(ConfigError, match="host:port"):
        ControlClient(endpoints)


def test_addresses_are_taken_as_they_are_written():
    """Names, IPv4, and IPv6 in brackets, each once."""
    written = ("a-b.c:1", "10.0.0.1:65535", "[::1]:7070", "xn--bcher-kva.example.:80")
    assert ControlClient(f" {','.join(written)},a-b.c:1").endpoints == written
