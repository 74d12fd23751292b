"""What stands where a master was is no master: the control client looks for the leader, whatever it is answered."""

import asyncio

import pytest

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import MEANINGS, Next, Status
from tests.support.garbage import GARBAGE, Listener
from tests.support.waiting import wait_until_async
from tests.unit.common.test_control_client import RENEW, Scripted, _http, masters, run

DEADLINE_S = 10.0


@pytest.mark.parametrize("kind", list(GARBAGE))
def test_a29_what_stands_at_the_dead_leaders_address_does_not_keep_clients(kind):
    """The leader is gone, something else listens at its address, another master leads: the next call gets there."""

    async def story(three, client):
        await client.call(RENEW, pb.RenewLeaseRequest())
        await three[0].stop()
        await wait_until_async(lambda: not client._http._idle.get(three[0].address), "the end of the kept connections")
        with Listener(kind, int(three[0].address.rpartition(":")[2])) as stranger:
            for each in three[1:]:
                each.leader = three[1]
            for _ in range(2):
                await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=DEADLINE_S)
            assert len(three[1].asked) == 2
            assert stranger.seen

    run(story)


@pytest.mark.parametrize("kind", list(GARBAGE))
def test_a29_a_stranger_among_the_endpoints_is_passed_over(kind):
    """A client that starts while something else has the address of one master finds the leader all the same."""

    async def body():
        async with masters() as (_, known):
            with Listener(kind) as stranger:
                async with ControlClient([stranger.address, *known.endpoints], cluster_id="c") as client:
                    await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=DEADLINE_S)
                    assert client.cluster_id == "c"

    asyncio.run(body())


@pytest.mark.parametrize("kind", list(GARBAGE))
def test_a28_no_stranger_says_that_anything_is_final(kind):
    """While nobody but a stranger answers, a call ends as one that may be made again."""

    async def story(three, client):
        await client.call(RENEW, pb.RenewLeaseRequest())
        for each in three:
            await each.stop()
        with Listener(kind, int(three[0].address.rpartition(":")[2])):
            with pytest.raises(RetryError) as caught:
                await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=0.3)
            assert not caught.value.from_server

    run(story)


@pytest.mark.parametrize("status", list(Status))
def test_a28_a_masters_status_is_final_as_the_table_says(status):
    """A status of the leader ends a call if the table says so; all others are tried again until they are not said."""

    async def story(three: list[Scripted], client: ControlClient):
        final = MEANINGS[status].next in (Next.FINAL, Next.ELSEWHERE) or status is Status.NOT_COMMITTED
        if MEANINGS[status].next is Next.DONE:
            return  # no master refuses with it
        three[0].answers = [(status, "")]
        try:
            await client.call(RENEW, pb.RenewLeaseRequest(), deadline_s=DEADLINE_S)
            refused = None
        except HoldfastError as error:
            refused = error
        assert (refused is not None) == final
        assert len(three[0].asked) == (1 if final else 2)
        if refused is not None:
            assert (refused.status, refused.from_server) == (status, True)

    run(story)


@pytest.mark.parametrize("wrong", ["early", "more"])
def test_a_connection_is_kept_only_after_a_whole_exchange(wrong):
    """An answer that comes before its request was taken in whole, or with bytes behind it, ends the connection: what
    is left of it would be taken for a part of the next exchange."""

    async def body():
        ended = asyncio.Event()
        reply = pb.DiscoverReply(cluster_id="c", name="m").SerializeToString()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if wrong == "more":
                await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
            writer.write(_http(200, {"Holdfast-Cluster": "c"}, reply) + b"x" * (wrong == "more"))
            await ended.wait()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with ControlClient(address) as client:
                request = b"x" * (8 << 20) * (wrong == "early")
                assert await client._http.call(address, "/holdfast.v1.Shuffles/Discover", request, 10.0) == reply
                assert not client._http._idle.get(address)
            ended.set()

    asyncio.run(asyncio.wait_for(body(), 60))
