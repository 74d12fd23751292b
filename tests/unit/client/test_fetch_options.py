"""Settings of readers: what cannot be is refused by name, and what can travels to tasks and counts there."""

import pickle
from typing import Any

import pytest

from holdfast.client import FetchOptions, Session
from holdfast.client.connection.addresses import listed_sights, sights_of
from holdfast.client.connection.ticket import Ticket
from holdfast.client.core.read.read_book import Sight
from holdfast.client.read.shared_read_state import OneReadState, SharedReadState, read_state_of
from holdfast.common.errors import ConfigError
from holdfast.common.ids import Instance, WorkerId
from holdfast.common.proto import holdfast_pb2 as pb

ONE, TWO = WorkerId(1), WorkerId(2)


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        ("order", "fastest", "`order` is 'given', 'health', 'region', not 'fastest'"),
        ("order", ["health"], "`order` is "),
        ("remote_interleave", "twice", "`remote_interleave` is 'once', 'every', not 'twice'"),
        ("pending_threshold", -1, "`pending_threshold` is 0 to 1000000, not -1"),
        ("pending_threshold", 1.5, "`pending_threshold` is a whole number"),
        ("slow_expire", "60s", "`slow_expire` is a number of seconds"),
        ("failure_expire", -1, "`failure_expire` is 0 to 86400"),
        ("region", "/eu/rack-1", "`region` is the region alone"),
        ("region", " eu", "`region` is the region alone"),
        ("region", 7, "`region` is a str"),
        ("speculative", "yes", "`speculative` is True or False"),
        ("speculative_delay", 0, "`speculative_delay` is 0.01 to 60"),
        ("speculative_delay", "2s", "`speculative_delay` is a number of seconds"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: Any, reported: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError) as refused:
        FetchOptions(**{name: value})
    assert reported in str(refused.value)


def test_a_session_takes_options_only() -> None:
    """Told before any master is asked."""
    with pytest.raises(ConfigError, match="`fetch` is FetchOptions"):
        Session("127.0.0.1:1", "app", fetch={"order": "given"})  # type: ignore[arg-type]


def test_the_defaults() -> None:
    """By health, nothing speculative, a minute."""
    options = FetchOptions()
    assert (options.order, options.pending_threshold, options.region, options.speculative) == ("health", 0, "", False)
    assert (options.slow_expire, options.failure_expire, options.remote_interleave) == (60, 60, "once")
    assert options.speculative_delay is None


def ticket(cluster: str, options: FetchOptions) -> Ticket:
    return Ticket("127.0.0.1:1", cluster, Instance(bytes(16)), bytes(16), fetch=options)


def test_the_readers_of_a_process_share_what_they_know() -> None:
    """By cluster and settings, also where the ticket came to a task as bytes; what one meets all others go by."""
    first = ticket("shared", FetchOptions())
    task: Ticket = pickle.loads(pickle.dumps(first))  # noqa: S301 - our own bytes
    assert read_state_of(task) is read_state_of(first)
    assert read_state_of(ticket("other", FetchOptions())) is not read_state_of(first)
    assert read_state_of(ticket("shared", FetchOptions(order="given"))) is not read_state_of(first)
    reads = read_state_of(first)
    before = OneReadState(reads)
    assert before.ordered([ONE, TWO]) == (ONE, TWO)
    OneReadState(reads).failed(ONE)
    assert before.ordered([ONE, TWO]) == (ONE, TWO), "one read keeps its order"
    assert OneReadState(reads).ordered([ONE, TWO]) == (TWO, ONE)
    OneReadState(reads).slow(TWO)
    assert reads.is_slow(TWO)
    assert not reads.is_slow(ONE)
    assert OneReadState(reads).ordered([ONE, TWO]) == (ONE, TWO), "slow behind failed"


def test_expiries_are_as_set() -> None:
    """What expires at once never counts."""
    reads = SharedReadState(FetchOptions(failure_expire=0, slow_expire=0))
    reads.failed(ONE)
    reads.slow(ONE)
    assert reads.ordered([ONE, TWO]) == (ONE, TWO)
    assert not reads.is_slow(ONE)


def test_what_is_kept_is_bounded() -> None:
    """Many clusters and settings: the oldest books go, and who uses them goes on with them."""
    first = ticket("bound", FetchOptions())
    reads = read_state_of(first)
    for number in range(20):
        read_state_of(ticket(f"bound {number}", FetchOptions()))
    assert read_state_of(first) is not reads


def test_the_region_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting counts; where there is none, the variable, which is checked as well."""
    monkeypatch.setenv("HOLDFAST_REGION", "eu")
    assert SharedReadState(FetchOptions())._book.region == "eu"
    assert SharedReadState(FetchOptions(region="us"))._book.region == "us"
    monkeypatch.setenv("HOLDFAST_REGION", "/eu/rack")
    with pytest.raises(ConfigError, match="HOLDFAST_REGION is the region alone"):
        SharedReadState(FetchOptions())
    monkeypatch.delenv("HOLDFAST_REGION")
    assert SharedReadState(FetchOptions())._book.region == ""


def test_what_the_masters_say() -> None:
    """A worker that drains serves, and is no lost one; a place that is not resolved yet has no region."""
    reported = [
        pb.WorkerAddress(worker=1, alive=True, place="/eu/rack-1"),
        pb.WorkerAddress(worker=2, alive=True, draining=True),
        pb.WorkerAddress(worker=3, place="/us/rack-1"),
    ]
    expected = {1: Sight(region="eu"), 2: Sight(draining=True), 3: Sight(alive=False, region="us")}
    assert sights_of(reported) == expected
    listed = [
        pb.WorkerInfo(worker=1, state="alive", place="/eu/rack-1"),
        pb.WorkerInfo(worker=2, state="draining"),
        pb.WorkerInfo(worker=3, state="lost", place="/us/rack-1"),
    ]
    assert listed_sights(listed) == expected
