"""Which copy Java reads first: as Python does, case by case; and late copies that lose on real workers."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from tests.jvm.test_fetch import NARROW, Reader, large, sum_of
from tests.support.jvm import Jvm, Programs
from tests.support.read_orders import CASES, random_cases
from tests.support.reduce_client import fill

#: Nobody who runs is so late; a stream that stands still is left after ten times as long.
LATE = "health::300:0"


@pytest.fixture
def reader(programs: Programs) -> Reader:
    """Java, ready to read."""
    return Reader(programs.start("fetch.FetchMain"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and two workers, which go on whatever a test did to them."""
    with local_cluster(masters=1, workers=2, dir=tmp_path_factory.mktemp("reads") / "cluster") as started:
        yield started


def test_java_orders_as_python(jvm: Jvm, tmp_path: Path) -> None:
    """Every case of the shared list and five hundred random ones; then the books that Java keeps for itself."""
    random = random_cases(500)
    (tmp_path / "cases").write_text("\n".join(case.line() for case in [*CASES, *random]))
    *orders, end = jvm.run("fetch.ReadOrderMain", tmp_path / "cases").splitlines()
    assert end == "ok"
    expected = [list(case.expected) for case in CASES] + [case.order() for case in random]
    reported = [[int(each) for each in line.removeprefix("order ").split(",") if each] for line in orders]
    assert dict(enumerate(reported)) == dict(enumerate(expected))


def test_a_late_worker_loses_to_the_other_copy(cluster: LocalCluster, reader: Reader) -> None:
    """A worker stands still between two reads of a JVM that has connections to it: its copies are read from the other
    one, each record once, and it is slow. The next read asks the other one first, though this one runs again. Either
    worker; through the least credit as well as through much."""
    with Session(cluster.endpoints, app="late") as session:
        shuffle, expected = large(session, copies=2)
        for index, credit in ((0, 48), (1, 48), (0, 4), (1, 3)):
            server = cluster.workers[index]
            reader.ask(shuffle, pause=-2, credit=credit * NARROW, order=LATE)
            reader.paused()
            server.kill(signal.SIGSTOP)
            try:
                reader.go_on()
                reader.paused()
            finally:
                server.kill(signal.SIGCONT)
            before = worker_status(server.http, 10.0)["counters"]["streams_opened"]
            reader.go_on()
            answer = reader.answer()
            assert worker_status(server.http, 10.0)["counters"]["streams_opened"] == before
            assert answer["sum"] == sum_of(expected)
            assert len(answer["slow"]) == 1, answer
            assert answer["failed"] == "", answer


def test_one_stream_at_a_time_has_no_rival(cluster: LocalCluster, reader: Reader) -> None:
    """Where the bytes in flight are for one stream a late one is left as ever, when it stands still for 3 s."""
    with Session(cluster.endpoints, app="narrow") as session:
        shuffle, expected = fill(session, replication=2)
        reader.ask(shuffle, pause=-1, credit=NARROW, order=LATE)
        reader.paused()
        cluster.workers[0].kill(signal.SIGSTOP)
        try:
            reader.go_on()
            answer = reader.answer()
        finally:
            cluster.workers[0].kill(signal.SIGCONT)
        assert answer["sum"] == sum_of(expected)
        assert (answer["slow"], len(answer["failed"])) == ("", 1)


def test_a_worker_that_does_not_even_shake_hands(cluster: LocalCluster, reader: Reader) -> None:
    """Without a connection to it a worker that stands still is left after the delay, as one that failed."""
    with Session(cluster.endpoints, app="hands") as session:
        shuffle, expected = fill(session, replication=2)
        cluster.workers[0].kill(signal.SIGSTOP)
        try:
            reader.ask(shuffle, order=LATE)
            answer = reader.answer()
        finally:
            cluster.workers[0].kill(signal.SIGCONT)
        assert answer["sum"] == sum_of(expected)
        assert len(answer["failed"]) == 1, answer


def test_many_tasks_share_what_is_known(cluster: LocalCluster, reader: Reader) -> None:
    """Eight tasks of a JVM read at once, speculatively, while nobody is late: nothing twice, nobody slow."""
    with Session(cluster.endpoints, app="many") as session:
        shuffle, expected = fill(session, replication=2)
        reader.ask(shuffle, tasks=8, order="region:here:5000:2")
        answer = reader.answer()
        assert answer["sum"] == sum_of(expected)
        assert answer["slow"] == answer["failed"] == ""
