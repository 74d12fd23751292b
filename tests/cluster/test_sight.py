"""What operators see of real masters: the page on the leader and on followers, and the events of all of them."""

import asyncio
import json
import re
import secrets
import urllib.error
import urllib.request
from typing import Any

import click
import pytest
from click.testing import CliRunner

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.errors import ConfigError, GiveUpError, ProtocolError
from holdfast.common.formats.reduce_layouts import ReduceWinners
from holdfast.common.ids import AttemptId
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent, facts_text
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.web.page import POLICY
from holdfast.tools.cli.main import holdfast
from tests.cluster.masters import agree, leader_of, run, worker
from tests.cluster.reduce_peers import metric
from tests.cluster.shapes import Shape
from tests.page.world import EVIL, SETTINGS, busy
from tests.support.waiting import wait_until
from tests.unit.master.test_page import Reader

SHARED = Shape(masters=3, workers=0, settings=SETTINGS)


def page(master: Server, query: str = "", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(f"http://{master.address}/{query}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


@pytest.fixture(scope="module")
def worked(shared: LocalCluster) -> LocalCluster:
    """Masters that were told of a day's work, and of a name that is markup."""

    async def story() -> None:
        async with ControlClient(shared.endpoints) as client:
            world = await busy(client, 1.0)
            await world.application(EVIL, "eve", 1, 1)

    run(story())
    return shared


def test_the_leader_shows_all_of_it(worked: LocalCluster) -> None:
    """Racks, tiers, workers, shuffles, rates, events; whole HTML; names that are markup do nothing."""
    status, headers, body = page(leader_of(worked))
    found = Reader(body)
    assert status == 200
    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    for each in (
        "8 of 8",
        "/hall-1/r1",
        "/hall-2/r7",
        "w08",
        "nightly-orders",
        "features-v2",
        "378.0 MiB",
        "2 leases",
    ):
        assert each in found.text, each
    assert "17 8 committed" not in found.text
    assert "17 9 open, 8 committed" in found.text
    assert re.search(r"Pushed [1-9][\d.]* MiB/s", found.text)
    assert EVIL in found.text
    assert [name for name, _ in found.tags].count("script") == 1, "the page's own"


def asked(cluster: LocalCluster, *words: str) -> tuple[int, str]:
    """Exit status and output of a command of the command line."""
    done = CliRunner().invoke(holdfast, [*words, "--masters", cluster.endpoints], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return int(done.return_value), done.stdout


def test_events_of_all_masters_are_reported_together(worked: LocalCluster) -> None:
    """`holdfast events`: each event of the log once, oldest first, those of one master by its name; levels and limits
    are heeded, and JSON is one document."""
    status, text = asked(worked, "events", "--limit", "3000", "--json")
    found = json.loads(text)
    texts = [each["text"] for each in found["events"] if each["raft_index"]]
    assert (status, found["masters_silent"]) == (0, [])
    assert len(texts) == len(set(texts)) > 10
    times = [each["time_ms"] for each in found["events"]]
    assert times == sorted(times)
    assert {each["master"] for each in found["events"]} == {"", "m1", "m2", "m3"}
    last = json.loads(asked(worked, "events", "--limit", "2", "--json")[1])["events"]
    assert last == found["events"][-2:]
    assert not json.loads(asked(worked, "events", "--least", "error", "--json")[1])["events"]
    output = asked(worked, "events", "--limit", "3000")[1]
    assert "worker.registered" in output
    assert "worker=w08 " in output
    assert any(facts_text({"application": EVIL}) in text for text in texts)
    with pytest.raises(ConfigError, match="choose one"):
        asked(worked, "events", "--follow", "--json")


def test_top_shows_the_busiest_first(worked: LocalCluster) -> None:
    """`holdfast top --once`: sums, workers by their pace, shuffles with their state; as JSON the same."""
    status, text = asked(worked, "top", "--json", "--rows", "5")
    found = json.loads(text)
    assert (status, found["workers_total"], found["lost"], found["healthy"]) == (0, 8, 0, True)
    paces = [each["push_rate"] + each["fetch_rate"] for each in found["workers"]]
    assert paces == sorted(paces, reverse=True)
    assert min(paces) > 0
    assert (len(found["workers"]), len(found["shuffles"])) == (5, 5)
    assert {each["state"] for each in found["shuffles"]} == {"open"}, "what is open comes first"
    assert found["push_rate"] > max(each["push_rate"] for each in found["workers"])
    status, output = asked(worked, "top", "--once")
    assert status == 0
    for each in (
        "8 workers",
        "MiB/s",
        "w01",
        "/hall-2/r7",
        "nightly-orders",
        "open",
        "committed",
        "unless renewed",
    ):
        assert each in output, each


def test_one_shuffle_is_shown_in_sums(worked: LocalCluster) -> None:
    """`holdfast shuffles show`: a committed shuffle with sizes and where its bytes are, an open one without sizes; as
    JSON the same; the options of the list are no options of it, and a shuffle that is not there is an error."""
    status, text = asked(worked, "shuffles", "show", "nightly-orders/2", "--json")
    found = json.loads(text)
    assert (status, found["shuffle"]["state"], found["shuffle"]["shuffle"]) == (0, "committed", 2)
    sizes = found["sizes"]
    assert (sizes["of"], sizes["count"], sizes["median_bytes"], sizes["skew"]) == ("maps", 42, 9 * MIB, 1.0)
    assert sizes["histogram"] == [{"from_bytes": 8 * MIB, "below_bytes": 16 * MIB, "count": 42}]
    (host,) = found["hosts"]
    assert (host["copies"], host["bytes"], host["workers"][0]["state"]) == (42, 378 * MIB, "alive")
    assert found["copies"]["readable"] == 42
    output = asked(worked, "shuffles", "show", "nightly-orders/2")[1]
    for each in ("MAP, committed", "total 378.0 MiB", "skew, largest to median: 1.0", "< 16.0 MiB", host["host"]):
        assert each in output, each
    assert "read by: nobody has asked" in output
    asked_for = pb.ShuffleKey(instance=bytes.fromhex(found["shuffle"]["instance"]), shuffle=2)

    async def read() -> None:
        async with ControlClient(worked.endpoints) as client:
            await client.call("Shuffles/GetManifest", pb.GetManifestRequest(key=asked_for), 60)

    run(read())
    (reader,) = json.loads(asked(worked, "shuffles", "show", "nightly-orders/2", "--json")[1])["readers"]
    assert (reader["host"], reader["asked"]) == ("127.0.0.1", 1)
    assert re.search(r"127\.0\.0\.1 +1 +\d.* ago", asked(worked, "shuffles", "show", "nightly-orders/2")[1])
    open_one = asked(worked, "shuffles", "show", "nightly-orders/1/0")[1]
    for each in ("REDUCE, open", "known after the commit", "; 400 in all", "epochs: 200, no partition moved"):
        assert each in open_one, each
    with pytest.raises(GiveUpError, match="no shuffle"):
        asked(worked, "shuffles", "show", "nightly-orders/77")
    with pytest.raises(click.UsageError, match="write --user behind `show`"):
        asked(worked, "shuffles", "--user", "etl", "show", "nightly-orders/2")


def test_each_thing_has_a_page_that_the_tables_link_to(worked: LocalCluster) -> None:
    """Shuffles, applications, hosts and workers: the links of the page lead to them; a shuffle has its sums and a
    drawing with numbers, and all show the events that name them, without those of others."""
    leader = leader_of(worked)
    links = Reader(page(leader)[2]).links()
    shuffles = [each for each in links if each.startswith("/shuffles/")]
    wanted: dict[str, tuple[str, ...]] = {
        "/workers/w02": ("Worker w02", "w02.example.net", "/data/nvme0", "worker=w02"),
        "/hosts/w02.example.net": ("Host w02.example.net", "1 of 1 alive", "worker=w02"),
    }
    for address in ("/workers/w02", "/hosts/w02.example.net"):
        assert address in links, address
    status, _, body = page(leader, shuffles[0][1:])
    application = next(each for each in Reader(body).links() if each.startswith("/applications/"))
    wanted[application] = ("Application", "registered", "lease", "application.registered")
    for address, texts in wanted.items():
        status, headers, body = page(leader, address[1:])
        found = Reader(body)
        assert (status, headers["Content-Security-Policy"]) == (200, POLICY)
        for each in texts:
            assert each in found.text, (address, each)
        assert "worker=w03" not in found.text
        assert [name for name, _ in found.tags].count("script") == 1
    instance = json.loads(asked(worked, "shuffles", "show", "nightly-orders/2", "--json")[1])["shuffle"]["instance"]
    found = Reader(page(leader, f"shuffles/{instance}/2/0?refresh=off")[2])
    for each in ("Sizes of maps", "378.0 MiB", "8.0 MiB to 16.0 MiB: 42", "1.0 largest to median", "shuffle.committed"):
        assert each in found.text, each
    assert f"/shuffles/{instance}/2/0" in found.links(), "refreshing can be switched on again"
    assert "rect" in {name for name, _ in found.tags}
    assert "Known after the commit" in Reader(page(leader, f"shuffles/{instance}/1/0")[2]).text


def test_what_is_not_there_is_not_found(worked: LocalCluster) -> None:
    """Unknown and odd names are 404 with a sentence; a follower cannot know, and links to the leader's page."""
    leader = leader_of(worked)
    for path, sentence in {
        "workers/w99": "There is no worker w99",
        "hosts/%3Cb%3E": "There is no host <b>",
        f"applications/{'ab' * 16}": "There is no application abab",
        "applications/zz": "There is no application zz",
        f"shuffles/{'ab' * 16}/1/0": "There is no shuffle abababab/1/0",
        "shuffles/x/-1/y": "There is no shuffle x/-1/y",
    }.items():
        status, _, body = page(leader, path)
        assert (status, sentence in Reader(body).text) == (404, True), path
    for path in ("workers", "workers/a/b", "racks/r1", "shuffles/1"):
        assert page(leader, path)[0] == 404
    assert page(leader, "workers/w02", "POST")[0] == 405
    follower = next(each for each in worked.masters if each is not leader)
    status, _, body = page(follower, "workers/w02")
    assert (status, f"//{leader.address}/workers/w02" in Reader(body).links()) == (200, True)


def test_followers_show_themselves_and_link_to_the_leader(worked: LocalCluster) -> None:
    """A follower has no workers to show, and says who has."""
    leader = leader_of(worked)
    for master in worked.masters:
        if master is not leader:
            found = Reader(page(master)[2])
            assert f"//{leader.address}/" in found.links()
            assert "8 workers (8 alive)" in found.text
            assert 'id="workers"' not in found.text


def test_the_page_is_only_read(worked: LocalCluster) -> None:
    """GET and HEAD; any other method is refused, and any query shows something."""
    leader = leader_of(worked)
    length = int(page(leader, "?refresh=off", "HEAD")[1]["Content-Length"])
    assert (page(leader, "", "HEAD")[2], length > 1_000) == (b"", True)
    assert {page(leader, "", method)[0] for method in ("POST", "PUT", "DELETE", "PATCH")} == {405}
    for query in (
        "?rack=%2Fhall-1%2Fr2",
        "?workers=99&shuffles=99",
        "?application=zz",
        "?rack=%ff%00",
        f"?{'x' * 999}",
    ):
        assert page(leader, query)[0] == 200
    assert "w02" in Reader(page(leader, "?rack=%2Fhall-1%2Fr2")[2]).text
    assert "w01" not in Reader(page(leader, "?rack=%2Fhall-1%2Fr2&events=1")[2]).text


def test_many_who_ask_at_once_all_get_one_or_are_asked_to_wait(worked: LocalCluster) -> None:
    """Pages are made one after the other; beyond a bound the answer is 503, and the master goes on."""
    leader = leader_of(worked)

    async def story() -> list[int]:
        asked = [asyncio.to_thread(page, leader) for _ in range(60)]
        return [status for status, _, _ in await asyncio.gather(*asked)]

    assert set(asyncio.run(story())) <= {200, 503}
    assert page(leader)[0] == 200


def test_every_master_tells_the_same_of_the_log(worked: LocalCluster) -> None:
    """Events of the log are equal on all masters; what only one saw carries its name; numbers and levels are heeded."""

    async def story() -> None:
        async with ControlClient(worked.endpoints) as client:

            async def events_of(address: str, **asked: Any) -> pb.ListEventsReply:
                reply: pb.ListEventsReply = await client.ask(address, "Admin/ListEvents", pb.ListEventsRequest(**asked))
                return reply

            async def of_log(address: str) -> list[tuple[int, str, str]]:
                reply = await events_of(address, limit=3_000)
                return [(each.raft_index, each.event, each.text) for each in reply.events if each.raft_index]

            leader = leader_of(worked).address
            wanted = await of_log(leader)
            names = {name for _, name, _ in wanted}
            assert {"worker.registered", "application.registered", "shuffle.committed"} <= names
            await agree(client)
            for master in worked.masters:
                assert await of_log(master.address) == wanted
            own = await events_of(leader, limit=3_000)
            assert {each.master for each in own.events if not each.raft_index} == {own.name}
            assert [each.event for each in own.events if not each.raft_index].count("leader.elected") >= 1
            assert [each.number for each in (await events_of(leader, after=own.last - 2)).events] == [
                own.last,
                own.last - 1,
            ]
            assert not (await events_of(leader, after=own.last)).events
            assert len((await events_of(leader)).events) <= 100
            assert not (await events_of(leader, least="error")).events
            with pytest.raises(ProtocolError, match="info, warning, error"):
                await events_of(leader, least="loud")

    run(story())


def test_shuffles_that_fell_back_are_counted_by_reason(worked: LocalCluster) -> None:
    """What drivers report adds up by reason, and is one event of the application, which says the latest cause."""

    async def story() -> list[pb.Event]:
        async with ControlClient(worked.endpoints) as client:
            for shuffles, text in ((2, "first"), (3, "alice holds 4 MiB")):
                await client.call(
                    "Shuffles/ReportFallback",
                    pb.ReportFallbackRequest(name="etl", reason=pb.FALLBACK_REASON_QUOTA, shuffles=shuffles, text=text),
                )
            reply: pb.ListEventsReply = await client.ask(
                leader_of(worked).address, "Admin/ListEvents", pb.ListEventsRequest(limit=3_000)
            )
            return [each for each in reply.events if each.event == LogEvent.SHUFFLE_FALLBACK.dotted]

    (event,) = asyncio.run(story())
    assert (event.subject, event.times) == ("etl", 2)
    assert "kind=quota" in event.text
    assert "alice holds 4 MiB" in event.text
    assert metric(worked, 'holdfast_master_fallbacks{reason="quota"}') == 5
    assert metric(worked, 'holdfast_master_fallbacks{reason="masters_away"}') == 0


def test_what_is_reported_shuffles_says_why_and_how_far(worked: LocalCluster) -> None:
    """A commit that waits for a worker that does not answer shows copies asked, sealed, and whom it waits for."""

    async def story() -> None:
        async with ControlClient(worked.endpoints) as client:
            instance = secrets.token_bytes(16)
            key = pb.ShuffleKey(instance=instance, shuffle=1)
            await client.call(
                "Shuffles/RegisterApplication",
                pb.RegisterApplicationRequest(instance=instance, name="slow", holder=instance),
            )
            asked = pb.RegisterShuffleRequest(
                key=key, kind=pb.PARTITION_KIND_REDUCE, partitions=6, maps=1, copies=2, ack=1
            )
            await client.call("Shuffles/RegisterShuffle", asked)
            array = ReduceWinners(6, (AttemptId(1),)).encode()
            commit = asyncio.ensure_future(
                client.call("Shuffles/Commit", pb.CommitRequest(key=key, winners_array=array))
            )

            copies = None
            while copies != (12, 0) and not commit.done():
                listed = await client.call("Admin/ListShuffles", pb.ListShufflesRequest(instance=instance))
                copies = next((each.sealing, each.sealed) for each in listed.shuffles)
            assert copies == (12, 0)
            assert "0 of 12 copies sealed" in Reader(page(leader_of(worked))[2]).text
            await client.call("Admin/Forget", pb.ForgetRequest(instance=instance))
            await asyncio.gather(commit, return_exceptions=True)

    run(story())


def test_a_leader_that_dies_is_reported_and_its_log_tells_again(own: LocalCluster) -> None:
    """The next leader tells that it leads and who is away; the one that was killed tells after its start what the log
    did before; one that is left alone shows no workers, since it cannot know."""

    async def events_of(address: str) -> list[tuple[str, str]]:
        async with ControlClient(own.endpoints) as client:
            reply: pb.ListEventsReply = await client.ask(address, "Admin/ListEvents", pb.ListEventsRequest(limit=3_000))
            return [(each.event, each.subject) for each in reply.events]

    async def register() -> None:
        async with ControlClient(own.endpoints) as client:
            await client.call("Registry/RegisterWorker", worker("early"))

    run(register())
    first = leader_of(own)
    first.kill()
    second = leader_of(own)
    assert second is not first
    wait_until(
        lambda: ("leader.elected", second.name) in asyncio.run(events_of(second.address)), "the next leader to serve"
    )
    wait_until(
        lambda: ("master.disconnected", first.name) in asyncio.run(events_of(second.address)), "the loss to be seen"
    )
    first.start()
    wait_until(
        lambda: ("worker.registered", "early") in asyncio.run(events_of(first.address)), "the log to be told again"
    )
    wait_until(
        lambda: ("master.connected", first.name) in asyncio.run(events_of(second.address)), "the return to be seen"
    )
    last = leader_of(own)
    wait_until(lambda: 'id="workers"' in page(last)[2].decode(), "the leader to show its workers")
    for master in own.masters:
        if master is not last:
            master.kill()
    wait_until(lambda: "this master has no leader" in Reader(page(last)[2]).text, "it to know that it is alone")
    assert 'id="workers"' not in page(last)[2].decode()
