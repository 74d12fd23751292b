"""The status page as HTML: whole, with every number, with names of others as names, and not too long."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from array import array
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey
from holdfast.common.limits import GIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.core.events import Event, Happened
from holdfast.master.core.history import Trend
from holdfast.master.core.rates import Rates, Totals, rates_between, totals_in
from holdfast.master.core.readers import HostReader
from holdfast.master.core.retention import in_time, retention_of
from holdfast.master.core.shuffle_sums import ShuffleSums, sizes_of
from holdfast.master.core.state.moves import moved_bytes
from holdfast.master.core.state.records import KIND_MAP, KIND_REDUCE, Application, Lease, Shuffle, Worker
from holdfast.master.leader.leader import WorkerReport
from holdfast.master.placement.groups import Adhering
from holdfast.master.raft.node import RaftStatus
from holdfast.master.web import page
from holdfast.master.web.about import curves_of, detail_of, history_of
from holdfast.master.web.drawings import CURVE, HISTOGRAM, curve_of, histogram_of
from holdfast.master.web.picture import ApplicationDetail, MasterRow, Own, Pace, Picture, ShuffleCounts, ShuffleRow
from holdfast.master.web.summary import fleet_of
from holdfast.master.web.view import Cut, Subject, View, address_of
from tests.unit.master.build import H1, H2, I1, Log, sixteen, worker

EVIL = "<script>alert(1)</script>\"'&\u202e"
SECOND = 1_000_000_000


class Reader(HTMLParser):
    """Reads a page as a browser without a script would."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, html: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html.decode())
        self.close()
        assert self.open == [], "every element that begins ends"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def links(self) -> list[str]:
        return [attrs["href"] or "" for name, attrs in self.tags if name == "a"]


def scripts(found: Reader) -> int:
    """How many there are; the page has one."""
    return [name for name, _ in found.tags].count("script")


def workers(count: int, racks: int = 3) -> list[Worker]:
    """Workers that registered, in racks."""
    log = Log()
    for number in range(1, count + 1):
        log.do(replace(worker(number, name=f"w{number}"), place=f"/dc/r{number % racks}"))
    return list(log.state.workers.values())


def beat(number: int, **changed: Any) -> WorkerReport:
    """What worker `number` told a second ago."""
    disk = pb.Directory(path=f"/d{number}", tier="SSD", used_bytes=3 * GIB, free_bytes=5 * GIB, healthy=True)
    for name, value in changed.items():
        setattr(disk, name, value)
    heartbeat = pb.HeartbeatRequest(worker=number, incarnation=1, directories=[disk], memory_bytes=77 * MIB, files=12)
    return WorkerReport(1, heartbeat, 9 * SECOND, rates=Rates(2 * MIB, 5 * MIB))


def own(**changed: Any) -> Own:
    masters = (MasterRow("m1", "a:1", True, True, True, None, ""), MasterRow("m2", "b:1", False, False, True, 7, ""))
    status = RaftStatus(
        node_id="m1",
        role="leader",
        serving=True,
        caught_up=True,
        term=41,
        leader="m1",
        commit_index=1234,
        applied_index=1233,
        log_length=234,
        log_bytes=5 * MIB,
        snapshot_index=1000,
        longest_turn=0.061,
        slow_turns=3,
        peers={},
        strangers=0,
        displaced=0,
    )
    fields: dict[str, Any] = {
        "name": "m1",
        "cluster": "c",
        "version": "1",
        "status": replace(status, **{name: changed.pop(name) for name in ("role", "leader") if name in changed}),
        "serving": True,
        "leader_http": "a:1",
        "masters": masters,
        "faults": (),
        "workers": 4,
        "workers_alive": 4,
        "applications": 6,
        "shuffles": 1,
        "now_ms": 10_000_000,
    }
    return Own(**{**fields, **changed})


def shuffle(number: int = 7, generation: int = 0, name: str = "app", user: str = "ana", **changed: Any) -> ShuffleRow:
    of = replace(application(), instance=b"\xab" * 16, name=name, user=user)
    record: dict[str, Any] = {
        "key": ShuffleKey(Instance(of.instance), ShuffleId(number), Generation(generation)),
        "kind": KIND_REDUCE,
        "partitions": 200,
        "maps": 40,
        "copies_wanted": 2,
        "copies": 2,
        "ack": 1,
        "assignment": b"",
        "created_ms": 9_000_000,
        "created_index": 1,
        "data_bytes": 33 * MIB,
        "committed_ms": 9_500_000,
        "moves": (b"\0" * 3 * moved_bytes(2),),
    }
    row: dict[str, Any] = {
        "held": 0,
        "sealing": None,
        "waits_for": (),
        "retention": retention_of(application(), lambda _: 5_000, 60_000),
        "tags": frozenset(),
    }
    row |= {name: changed.pop(name) for name in row if name in changed}
    return ShuffleRow(application=of, shuffle=Shuffle(**{**record, **changed}), **row)


def application(leases: int = 1) -> Application:
    made = tuple(Lease(sixteen(f"h{number}"), 600_000) for number in range(1, leases + 1))
    return Application(instance=I1, name="app", user="ana", created_ms=1, serial=1, leases=made)


def picture(
    known: list[Worker], reports: Mapping[int, WorkerReport], view: View | None = None, **changed: Any
) -> Picture:
    view = view or View()
    places = {each.id: each.place for each in known}
    fleet = fleet_of(known, reports, places, {}, view, 10 * SECOND, lambda: None)
    event = Event(1, 9_990_000, 3, Happened(LogEvent.WORKER_LOST, worker="w9"))
    fields: dict[str, Any] = {
        "shuffles": (shuffle(),),
        "shuffle_cut": Cut.of(1, 1),
        "counts": ShuffleCounts(0, 1, 0, 0, 1),
    }
    return Picture(**{**fields, "view": view, "own": own(), "events": (event,), "fleet": fleet, **changed})


def read(shown: Picture) -> Reader:
    return Reader(page.write(shown))


def test_every_number_is_in_the_html() -> None:
    """Workers by rack with tiers and disks, shuffles with progress, Raft, events and reasons; no
    script but the page's own."""
    known = workers(4)
    found = read(picture(known, {each.id: beat(each.id) for each in known}))
    for reported in (
        *("/dc/r0", "/dc/r1", "/dc/r2", "w1", "w4", "host1", "/d4", "3.0 GiB of 8.0 GiB", "12.0 GiB of 32.0 GiB"),
        *("2.0 MiB/s", "5.0 MiB/s", "8.0 MiB/s", "20.0 MiB/s", "77.0 MiB", "12 files", "seen 1 s ago", "2 of 2 alive"),
        *("41", "1,234", "1,233", "234 entries", "61 ms", "7 entries behind", "this one"),
        *("/7", "REDUCE, 2 copies", "user ana", "40", "200", "203 (3 moved)", "33.0 MiB", "committed"),
        *(
            "1 lease, the last expires in 9 min 55 s unless renewed",
            "holder 68312e2e: renewed 5 s ago",
            "Deleted 1 min after",
        ),
        *("worker.lost worker=w9 — A worker is lost", "10 s ago", "error"),
    ):
        assert reported in found.text, reported
    assert not {"iframe", "object", "form", "img"} & {name for name, _ in found.tags}
    assert scripts(found) == 1
    assert not any(name.startswith("on") or name == "style" for _, attrs in found.tags for name in attrs)


def test_names_of_others_stay_names() -> None:
    """Markup in an application, a user, a worker, a path, a problem and an event is shown and does nothing."""
    known = [replace(each, name=EVIL, host=EVIL, place=f"/dc/{EVIL}") for each in workers(1)]
    event = Event(1, 9_000_000, 0, Happened(LogEvent.PLACEMENT_NO_ROOM, what=EVIL))
    rows = (shuffle(name=EVIL, user=EVIL, sealing=(1, 2), committed_ms=0, waits_for=(EVIL,)),)
    shown = picture(known, {1: beat(1, path=EVIL, problem=EVIL)}, shuffles=rows, events=(event,))
    html = page.write(replace(shown, own=own(cluster=EVIL, name=EVIL), application=EVIL, view=View(rack=EVIL)))
    found = Reader(html)
    assert scripts(found) == 1
    assert found.text.count("<script>alert(1)</script>\"'&") >= 8
    assert "\u202e" not in html.decode(), "what turns text around is marked"


@given(st.text(min_size=1, max_size=130))
def test_whatever_comes_is_escaped(name: str) -> None:
    """Text and attributes of any characters come back as they were, where they can be printed; long names are cut, and
    whole in their title."""
    found = Reader(page.write(Picture(View(), own(cluster=name), ())))
    shown = "".join(each if each.isprintable() else "\ufffd" for each in name)
    cut = len(name) > 80
    assert (shown[:79] + "…" if cut else shown) in found.words
    assert [attrs["title"] for tag, attrs in found.tags if tag == "span" and "title" in attrs] == [shown] * cut


@pytest.mark.parametrize(
    ("address", "history"),
    [
        ("", []),
        ("http://history:18080/", ["http://history:18080/history/application_1_7%2F..%3F%22%3Cb%3E/"]),
        ("https://rm/cluster/app/{app_id}?a=1&b", ["https://rm/cluster/app/application_1_7%2F..%3F%22%3Cb%3E?a=1&b"]),
    ],
)
def test_an_application_has_links_to_its_pages_and_to_what_is_kept_of_it(address: str, history: list[str]) -> None:
    """Its id in Spark leads to the history server, at the address that is configured, whatever the id is; its own
    pages have a link, too."""
    spark_id = 'application_1_7/..?"<b>'
    of = replace(application(), spark_id=spark_id, ui_url="http://driver:4040/?a='1'&b=2")
    detail = ApplicationDetail(of, retention_of(of, lambda _: 5_000, 60_000), 0, 0)
    view = View(subject=Subject("applications", (I1.hex(),)))
    found = read(Picture(view, own(), (), detail=detail, history_url=history_of(address, spark_id)))
    assert [each for each in found.links() if each.startswith("http")] == [*history, of.ui_url]
    assert spark_id in found.text
    without = replace(detail, application=replace(of, spark_id="", ui_url=""))
    plain = read(Picture(view, own(), (), detail=without, history_url=history_of(address, "")))
    assert not [each for each in plain.links() if each.startswith("http")]


def test_the_policy_allows_one_style_sheet_and_one_script_and_nothing_else() -> None:
    """The hashes that the header names are those of the sheet and the script in the page; nothing else may run, and
    only the same server be asked."""
    html = page.write(picture([], {})).decode()
    sheet = html[html.index("<style>") + 7 : html.index("</style>")]
    script = html[html.index("<script>") + 8 : html.index("</script>")]
    for kind, text in (("style", sheet), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"; {kind}-src 'sha256-{digest}';" in page.POLICY
    assert "; connect-src 'self';" in page.POLICY
    assert page.POLICY.startswith("default-src 'none';")
    assert "unsafe" not in page.POLICY


def test_problems_are_reported_first() -> None:
    """Lost workers by name, directories with their errors, full ones, lost data and masters away."""
    known = workers(9)
    lost = [replace(each, alive=False) for each in known[:7]]
    gone = replace(known[7], alive=False, gone=True)
    reports = {9: beat(9, problem="EIO", state="critical")}
    away = (MasterRow("m3", "c:1", False, False, False, None, "refused"),)
    found = read(
        picture([*lost, gone, known[8]], reports, own=own(masters=away), counts=ShuffleCounts(1, 2, 3, 4, 3), silent=2)
    ).text
    for reported in (
        "7 workers lost: w1, w2, w3, w4, w5 and 2 more",
        "w9 cannot use /d9: EIO",
        "master m3 is not connected: refused",
        "3 shuffles committed without all data",
        "4 shuffles committed with fewer copies than asked for",
        "Missing copies of 3 of them are sealed once their workers can; the others stay so",
        "2 applications silent",
        "gone",
        "critical",
    ):
        assert reported in found, reported
    assert "w8," not in found, "one that is gone is missed by nobody"
    assert "all well" in read(picture(known, {each.id: beat(each.id) for each in known})).text


def test_how_open_partitions_stand_is_told() -> None:
    """How many are as wished, softly and not at all; those that are not are something to look at."""
    found = read(picture(workers(1), {1: beat(1)}, adhering=Adhering(10, 2, 3))).text
    assert "placement: 10 strict, 2 soft, 3 failed" in found
    assert "3 of 15 open partitions not as placement wishes, and 2 only softly" in found
    assert "not as placement" not in read(picture(workers(1), {1: beat(1)}, adhering=Adhering(10, 2, 0))).text


def test_what_is_long_has_pages() -> None:
    """1,500 workers and 1,000 shuffles: 50 of each, links to the others, every rack in sight, and a bounded size."""
    known = workers(1_500, racks=30)
    reports = {each.id: beat(each.id) for each in known}
    rows = tuple(shuffle(number) for number in range(50))
    shown = picture(known, reports, View(workers=3), shuffles=rows, shuffle_cut=Cut.of(1_000, 1))
    html = page.write(shown)
    found = Reader(html)
    assert len(html) < 400_000
    assert sum(attrs.get("class", "") == "worker alive" for _, attrs in found.tags) == 50
    assert "workers 101–150 of 1,500" in found.text
    assert "shuffles 1–50 of 1,000" in found.text
    assert {"?workers=4#workers", "?workers=30#workers", "?workers=3&shuffles=2#shuffles"} <= set(found.links())
    assert all(f"/dc/r{number}" in found.text for number in range(30))
    one_rack = read(picture(known, reports, View(rack="/dc/r7")))
    assert sum(attrs.get("class", "") == "worker alive" for _, attrs in one_rack.tags) == 50
    assert "Only rack" in one_rack.text


def test_hosts_are_lines_that_can_be_opened() -> None:
    """Workers of one host stand below its line, which has their sums and is open where one of them is not well; a
    single worker needs no line. A host that is on two pages has the sums of all its workers on both."""
    known = workers(61)
    for number, each in enumerate(known):
        known[number] = replace(each, place="/dc/r1", host=("h1", "h2")[number % 2] if number < 60 else "h3")
    reports = {each.id: beat(each.id) for each in known}
    found = read(picture(known, reports))
    lines = [attrs for name, attrs in found.tags if name == "details" and attrs.get("class") == "host"]
    assert lines == [{"class": "host"}, {"class": "host"}]
    assert "30 of 30 alive" in found.text
    assert "90.0 GiB of 240.0 GiB" in found.text
    assert "60.0 MiB/s pushed, 150.0 MiB/s fetched" in found.text
    known[1] = replace(known[1], alive=False)
    lines = [attrs for name, attrs in read(picture(known, reports)).tags if name == "details" and "class" in attrs]
    assert lines == [{"class": "host"}, {"class": "host", "open": None}]
    rest = read(picture(known, reports, View(workers=2)))
    assert "29 of 30 alive" in rest.text
    assert sum(str(attrs.get("class")).startswith("worker ") for _, attrs in rest.tags) == 11


def test_the_pools_of_a_worker_are_told() -> None:
    """A worker with tags shows them, one without says nothing of any."""
    known = [replace(each, tags=tags) for each, tags in zip(workers(2), (("ssd", "etl"), ()), strict=True)]
    found = read(picture(known, {each.id: beat(each.id) for each in known})).text
    assert "tags ssd, etl" in found
    assert found.count("tags") == 1


def test_a_follower_shows_itself_and_the_way_to_the_leader() -> None:
    """No workers and shuffles, which it cannot know, but its state, its events and a link."""
    found = read(Picture(View(), own(role="follower", serving=False, leader="m2", leader_http="b:1"), ()))
    assert "//b:1/" in found.links()
    assert "This master is a follower" in found.text
    assert "Here, as of entry 1,233: 4 workers (4 alive), 6 applications, 1 shuffle." in found.text
    alone = read(Picture(View(), own(role="candidate", leader=None, leader_http=""), ()))
    assert "this master has no leader" in alone.text


def test_an_empty_cluster_says_what_to_do() -> None:
    """No worker, no shuffle, no event, and a sentence for each."""
    found = read(picture([], {}, shuffles=(), shuffle_cut=Cut.of(0, 1), events=())).text
    assert "No worker has registered. Start one:" in found
    assert "No shuffle is registered." in found
    assert "Nothing has happened" in found


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"committed_ms": 0}, "open"),
        ({"committed_ms": 0, "held": 5 * MIB}, "5.0 MiB so far"),
        ({"committed_ms": 0, "sealing": (150, 400), "waits_for": ("w3",)}, "150 of 400 copies sealed waits for w3"),
        ({"lost": 2}, "data lost"),
        ({"lost": 2}, "2 epochs lost"),
        ({"under_replicated": 3}, "3 epochs have fewer copies than asked for: that stays so"),
        ({"copies": 1}, "1 copy of 2"),
        ({"tags": frozenset({"ssd", "etl"})}, "2 copies, user ana, confined to the tags etl and ssd"),
        ({"generation": 4}, "/7/4"),
        ({"maps": 0}, "not said yet"),
        ({"kind": KIND_MAP, "moves": ()}, "–"),
    ],
)
def test_how_far_a_shuffle_is(changed: dict[str, Any], reported: str) -> None:
    """Each stage of a shuffle has its words."""
    assert reported in read(picture([], {}, shuffles=(shuffle(**changed),))).text


def test_curves_and_refresh_are_of_the_view() -> None:
    """Samples become a line with axes; refreshing can be switched off, and stays off in every link."""
    found = read(picture([], {}, pace=Pace(5, (Rates(1, 2), Rates(3, 4)))))
    assert sum(name == "polyline" for name, _ in found.tags) == 4
    assert "0 B/s 512 B/s 1.0 KiB/s 10 s ago 5 s ago now" in found.text
    assert [attrs["content"] for _, attrs in found.tags if attrs.get("http-equiv") == "refresh"] == ["10"]
    assert [attrs.get("data-refresh") for name, attrs in found.tags if name == "html"] == ["10"]
    still = read(picture(workers(60), {}, View(refresh=False)))
    assert not [attrs for _, attrs in still.tags if attrs.get("http-equiv") or "data-refresh" in attrs]
    assert all("refresh=off" in link for link in still.links() if link.startswith("?workers"))


@given(
    st.dictionaries(
        st.sampled_from(["workers", "shuffles", "rack", "application", "events", "refresh", "x"]), st.text(max_size=9)
    )
)
def test_any_address_shows_something(query: dict[str, str]) -> None:
    """Whatever is written there is read, within bounds, and written back as the same view."""
    view = View.of(query)
    assert min(view.workers, view.shuffles) >= 1
    assert 1 <= view.events <= 1_000
    assert View.of(dict(parse_qsl(view.link().partition("?")[2]))) == view


@given(st.integers(0, 500), st.integers(-3, 500))
def test_pages_cover_everything_once(total: int, asked: int) -> None:
    """The rows of all pages are all rows; a page beyond the last is the last."""
    cut = Cut.of(total, asked)
    rows = [
        row
        for number in range(1, cut.pages + 1)
        for row in range(Cut.of(total, number).first, Cut.of(total, number).end)
    ]
    assert rows == list(range(total))
    assert 1 <= cut.page <= cut.pages


def test_why_something_is_still_here() -> None:
    """The lease that ends last decides; an application that is silent says when its data goes."""
    silence = {H1: 5_000, H2: 500_000}
    reason = retention_of(application(2), lambda lease: silence[lease.holder], 60_000)
    assert reason.sentence == "2 leases, the last expires in 9 min 55 s unless renewed"
    assert [each[:15] for each in reason.leases] == ["holder 68312e2e", "holder 68322e2e"]
    over = retention_of(application(), lambda _: 620_000, 60_000)
    assert over.sentence == "1 lease, expired 20 s ago; deleted after the grace"
    assert over.deletes == "Deleted in 40 s unless its application renews a lease before"
    assert len(retention_of(application(9), lambda _: 0, 0).leases) == 6


@pytest.mark.parametrize(
    ("ms", "reported"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (61_000, "1 min 1 s"),
        (120_000, "2 min"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_spans_are_for_people(ms: int, reported: str) -> None:
    """Two units at most."""
    assert in_time(ms) == reported


def test_rates_are_between_two_heartbeats() -> None:
    """Bytes over time; a hurried heartbeat keeps the pace, a counter that fell or is new is no pace."""
    before = totals_in({"push_bytes": 1_000, "stream_bytes": 0, "spills": 3})
    assert before == Totals(1_000, 0)
    assert totals_in({"push_bytes": 1_000}) is None
    assert rates_between(before, Totals(5_000, 600), 2 * SECOND, Rates()) == (2_000, 300)
    assert rates_between(before, Totals(9_000, 0), 1_000, Rates(7, 8)) == (7, 8)
    assert rates_between(before, Totals(10, 0), SECOND, Rates(7, 8)) == (0, 0)
    assert rates_between(None, before, SECOND, Rates()) == (0, 0)
    assert rates_between(before, None, SECOND, Rates()) == (0, 0)


def test_summing_up_a_large_cluster_rests_in_between() -> None:
    """The thread that sums up gives way after every thousand workers."""
    rests: list[float] = []
    known = workers(1_000)
    fleet_of(known, {}, {each.id: each.place for each in known}, {}, View(), 0, lambda: rests.append(time.monotonic()))
    assert len(rests) >= 2


@given(st.lists(st.integers(0, 1 << 40), max_size=60), st.integers(1, 5))
def test_a_histogram_stays_within_its_drawing(sizes: list[int], times: int) -> None:
    """Bars stand on the axis between the edges, whatever counts at all is to be seen, and labels are few."""
    buckets = sizes_of(array("Q", sizes * times)).histogram
    drawn = histogram_of("partitions", buckets)
    assert [bar.count for bar in drawn.bars] == [each.count for each in buckets]
    for bar in drawn.bars:
        assert HISTOGRAM.left <= bar.x <= bar.x + bar.width <= HISTOGRAM.right
        assert HISTOGRAM.top <= bar.y <= bar.y + bar.height <= HISTOGRAM.bottom + 1e-9
        assert (bar.height >= 1) == (bar.count > 0)
    assert len(drawn.sizes) <= 7
    assert all(HISTOGRAM.top <= tick.at <= HISTOGRAM.bottom for tick in drawn.counts)


@given(st.lists(st.floats(0, 2.0**60), max_size=150), st.sampled_from([5, 60]))
def test_a_curve_stays_within_its_drawing(samples: list[float], every: int) -> None:
    """Every sample is a point between the axes, which reach up to it; fewer than two make no line."""
    drawn = curve_of(samples, every)
    if len(samples) < 2:
        assert drawn is None
        return
    assert drawn is not None
    points = [tuple(map(float, each.split(","))) for each in drawn.points.split()]
    assert len(points) == len(samples)
    assert all(CURVE.top - 0.1 <= y <= CURVE.bottom for _, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert len(drawn.sizes) == len(drawn.times) == 3


def test_a_worker_and_a_host_show_their_last_hour() -> None:
    """What was pushed, fetched and stored, minute by minute, with the time and the unit; nothing is drawn before there
    are two samples."""
    known = workers(1)
    view = View(subject=Subject("workers", ("w1",)))
    trend = Trend((MIB, 3 * MIB, 2 * MIB), (0.0, 0.0, 0.0), (GIB, GIB, 2 * GIB))
    found = read(replace(picture(known, {1: beat(1)}, view), trend=curves_of(trend, 60)))
    for each in ("The last hour", "Pushed 2.0 MiB/s", "4.0 MiB/s", "3 min ago", "Stored 2.0 GiB", "now"):
        assert each in found.text, each
    young = read(replace(picture(known, {1: beat(1)}, view), trend=curves_of(Trend(), 60)))
    assert young.text.count("no history yet") == 3


def test_who_reads_a_shuffle_is_told() -> None:
    """The hosts that asked where its data is, how often and when; nobody is a sentence."""
    row = shuffle()
    view = View(subject=Subject("shuffles", (I1.hex(), "7", "0")))
    shown = Picture(view, own(), (), shuffles=(row,))
    readers = [HostReader("10.0.0.7", 3, own().now_ms - 5_000), HostReader("10.0.0.8", 1, own().now_ms - 90_000)]
    found = read(replace(shown, detail=detail_of(row, ShuffleSums(), [], readers))).text
    assert "10.0.0.7 asked 3 times, last 5 s ago 10.0.0.8 asked 1 time, last 1 min 30 s ago" in found
    assert "Nobody has asked this leader" in read(replace(shown, detail=detail_of(row, ShuffleSums(), []))).text


@given(st.text(max_size=40))
def test_addresses_bring_back_their_names(name: str) -> None:
    """Names of any characters, slashes too, are read from the address that is made of them."""
    subject = Subject("workers", (name,))
    assert Subject.of(address_of("workers", name)) == subject
    assert View.of({}, subject).link() == address_of("workers", name)
