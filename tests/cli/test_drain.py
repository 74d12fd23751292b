"""`holdfast drain` as people and scripts meet it."""

import asyncio
import json
import math
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import ConfigError, Session, WorkerInfo
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.errors import RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.commands import draining
from holdfast.tools.cli.commands.draining import seconds_until
from tests.cli.test_commands import COMMAND, SECONDS_MAX, document, run
from tests.cluster.test_client import random_regions
from tests.cluster.test_client import write as write_map
from tests.cluster.test_metrics import scrape
from tests.support.reduce_client import MAPS, fill
from tests.support.waiting import wait_until

QUICK = {"lease": {"heartbeat": "100ms", "worker": "2s", "tick": "100ms"}}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One master and three workers that hear at once what is wanted of them."""
    with local_cluster(masters=1, workers=3, dir=tmp_path_factory.mktemp("cli"), settings=QUICK) as started:
        yield started


@pytest.fixture
def cluster(trio: LocalCluster) -> Iterator[LocalCluster]:
    """The same, with nobody draining behind a test."""
    yield trio
    for worker in trio.workers:
        if not worker.running:
            worker.start()
    trio.wait_ready()
    document(run("undrain", *[worker.name for worker in trio.workers], "--json", masters=trio.endpoints))


def keeping(session: Session) -> list[WorkerInfo]:
    """The workers that have told the masters of sealed files, once there are some."""
    return wait_until(lambda: [each for each in session.workers() if each.files], "the masters to hear of files")


def test_a_worker_is_drained_for_a_restart(cluster: LocalCluster) -> None:
    """It exits with 0 when nothing is open there, and says what it still keeps; `status` and `workers` call that no
    problem; cancelled, all is as before."""
    with Session(cluster.endpoints, app="cli") as session:
        fill(session)
        reported = document(run("drain", "w1", "--json", masters=cluster.endpoints))
        assert (reported["safe"], reported["for"]) == (True, "restart")
        (worker,) = reported["workers"]
        assert (worker["name"], worker["state"]) == ("w1", "draining")
        assert (worker["drain"]["epochs"], worker["drain"]["writing"]) == (0, 0)
        assert worker["drain"]["restart"] is True
        assert document(run("status", "--json", masters=cluster.endpoints))["healthy"] is True
        listed = document(run("workers", "--json", masters=cluster.endpoints))["workers"]
        assert {each["name"]: each["state"] for each in listed} == {"w1": "draining", "w2": "alive", "w3": "alive"}
        people = run("drain", "w1", masters=cluster.endpoints)
        assert people.returncode == 0, people.stderr
        assert "safe: stop it with `systemctl stop`" in people.stdout
        cancelled = document(run("undrain", "w1", "--json", masters=cluster.endpoints))
        assert [(each["state"], each["drain"]) for each in cancelled["workers"]] == [("alive", None)]


def test_progress_is_reported_until_a_worker_may_be_removed(cluster: LocalCluster) -> None:
    """For a removal it waits for what the worker keeps, says so on standard error, and ends when that is gone."""
    with Session(cluster.endpoints, app="cli") as session:
        shuffle, _ = fill(session, MAPS)
        number = keeping(session)[0].worker
        command = [*COMMAND, "drain", str(number), "--for", "removal", "--json", "--masters", cluster.endpoints]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            assert any("keeps data of 1 shuffle" in line for line in running.stderr)
            assert running.poll() is None
            shuffle.unregister()
            out, _ = running.communicate(timeout=SECONDS_MAX)
        assert running.returncode == 0
        (worker,) = json.loads(out)["workers"]
        assert (worker["worker"], worker["drain"]["removal"], worker["drain"]["waits"]) == (number, True, "")


def test_a_removed_worker_is_gone_and_no_problem(cluster: LocalCluster) -> None:
    """Drained and stopped it is "gone" and the cluster is well; one that was killed is "lost", and named as a
    problem."""
    gone, lost, _ = cluster.workers
    run("drain", gone.name, "--for", "removal", masters=cluster.endpoints)
    gone.end()

    def states() -> dict[str, str]:
        listed = json.loads(run("workers", "--json", masters=cluster.endpoints).stdout)["workers"]
        return {each["name"]: each["state"] for each in listed}

    wait_until(lambda: states()[gone.name] == "gone", "the masters to miss it")
    for what in ("status", "workers", "top"):
        assert run(what, "--json", masters=cluster.endpoints).returncode == 0, what
    assert run("drain", gone.name, masters=cluster.endpoints).returncode != 0
    counted = document(run("status", "--json", masters=cluster.endpoints))
    assert (counted["workers"], counted["workers_alive"]) == (2, 2), "nobody misses it"
    lost.kill()
    wait_until(lambda: states()[lost.name] == "lost", "the masters to miss the other one")
    reported = run("status", "--json", masters=cluster.endpoints)
    assert reported.returncode == 1
    assert json.loads(reported.stdout)["problems"] == [f"1 worker lost: {lost.name}"]


def test_no_wait_says_how_it_stands(cluster: LocalCluster) -> None:
    """With --no-wait it begins and leaves with 0, safe or not."""
    reported = document(run("drain", "w2", "w3", "--no-wait", "--json", masters=cluster.endpoints))
    assert [(each["name"], each["state"]) for each in reported["workers"]] == [("w2", "draining"), ("w3", "draining")]


def test_a_host_is_drained_with_all_its_workers(tmp_path: Path) -> None:
    """Both workers of a host drain by its name, others take data, and `undrain` ends it, but not of one that was
    stopped, which no longer takes data; `workers`, `status` and `top` have a line for each host."""
    with local_cluster(1, dir=tmp_path, hosts=2, workers_per_host=2, settings=QUICK) as cluster:
        drained = document(run("drain", "h1", "--json", masters=cluster.endpoints))
        assert (drained["safe"], sorted(each["name"] for each in drained["workers"])) == (True, ["w1", "w1-2"])
        listed = document(run("workers", "--json", masters=cluster.endpoints))
        assert {each["name"]: each["state"] for each in listed["workers"]} == {
            "w1": "draining",
            "w1-2": "draining",
            "w2": "alive",
            "w2-2": "alive",
        }
        assert [(each["host"], each["workers"], each["draining"]) for each in listed["hosts"]] == [
            ("h1", 2, 2),
            ("h2", 2, 0),
        ]
        refused = run("drain", "h2", masters=cluster.endpoints)
        assert (refused.returncode, "no other worker would take data" in refused.stderr) == (1, True)
        shown = run("workers", masters=cluster.endpoints).stdout
        assert re.search(r"h1 .* 2 alive, 2 draining", shown)
        assert re.search(r"h2 .* 2 alive", run("top", "--once", masters=cluster.endpoints).stdout)
        assert "4 of 4 workers alive on 2 hosts, 2 draining, " in run("status", masters=cluster.endpoints).stdout
        ended = document(run("undrain", "h1", "--json", masters=cluster.endpoints))
        assert [each["state"] for each in ended["workers"]] == ["alive", "alive"]
        stopped = cluster.workers[0]
        stopped.stop()
        refused = run("undrain", stopped.name, masters=cluster.endpoints)
        assert (refused.returncode, "stopped, or about to" in refused.stderr) == (1, True)
        stopped.start()
        started = document(run("workers", stopped.name, "--json", masters=cluster.endpoints))
        assert [each["state"] for each in started["workers"]] == ["alive"]


def test_a_worker_that_comes_back_to_a_host_is_not_overlooked(tmp_path: Path) -> None:
    """A worker that ends with data is lost, even if it drained and was stopped in order, and its host cannot be drained
    until somebody removes it. Where it comes back after that, the wait ends and names it, since whoever stops the
    machine would stop it, too. Only lost workers are removed."""
    with (
        local_cluster(1, dir=tmp_path, hosts=2, workers_per_host=2, settings=QUICK) as cluster,
        Session(cluster.endpoints, app="cli") as session,
    ):
        fill(session, MAPS)
        one = keeping(session)[0]
        host = one.host
        other = next(each.name for each in session.workers() if each.host == host and each.name != one.name)
        away = next(each for each in cluster.workers if each.name == other)
        run("drain", away.name, masters=cluster.endpoints)
        away.end()
        wait_until(
            lambda: [each for each in session.workers() if (each.name, each.state) == (away.name, "lost")],
            "the masters to miss it",
        )
        refused = run("drain", host, "--for", "removal", masters=cluster.endpoints)
        number = next(each.worker for each in session.workers() if each.name == away.name)
        assert (refused.returncode, f"`holdfast remove {number}`" in refused.stderr) == (1, True)
        refused = run("remove", host, masters=cluster.endpoints)
        assert (refused.returncode, f"{one.name}: not lost" in refused.stderr) == (1, True)
        assert "holdfast_master_workers_lost 1.0" in scrape(cluster.leader().address)
        for _ in range(2):
            removed = document(run("remove", away.name, "--json", masters=cluster.endpoints))
            assert [(each["name"], each["state"]) for each in removed["workers"]] == [(away.name, "gone")]
        assert "holdfast_master_workers_lost 0.0" in scrape(cluster.leader().address)
        command = [*COMMAND, "drain", host, "--for", "removal", "--masters", cluster.endpoints]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            assert any("keeps data of 1 shuffle" in line for line in running.stderr)
            away.start()
            _, told = running.communicate(timeout=SECONDS_MAX)
        assert running.returncode == 1
        assert f"{away.name} has come back to {host}, and takes data; drain {host} again" in told


def test_a_host_can_be_looked_at_alone(tmp_path: Path) -> None:
    """`workers HOST` and `top HOST` show its workers and no others, a worker's name that one alone; who is not there
    is named. `top` has workers of a host together."""
    with local_cluster(1, dir=tmp_path, hosts=2, workers_per_host=2, settings=QUICK) as cluster:
        for words, names in (("h1", ["w1", "w1-2"]), ("w2-2", ["w2-2"])):
            for command in ("workers", "top"):
                listed = document(run(command, words, "--json", masters=cluster.endpoints))
                assert sorted(each["name"] for each in listed["workers"]) == names
                assert [each["names"] for each in listed["hosts"]] == [names]
        for command in ("workers", "top"):
            refused = run(command, "h9", masters=cluster.endpoints)
            assert (refused.returncode, 'there is no worker or host "h9"' in refused.stderr) == (1, True)
        shown = run("top", masters=cluster.endpoints).stdout
        assert re.search(r"h1\s+w1 [^\n]*\n\s*h1\s+w1-2 ", shown), shown


def test_a_host_that_goes_away_at_a_time_is_told(cluster: LocalCluster) -> None:
    """`drain --by` waits for a removal until then; `workers` and `status` show until when, and whether that is reached.
    Said again without a time it stays, and `undrain` takes it back. What is late is a warning and no problem."""

    def shown(what: str) -> str:
        return run(what, masters=cluster.endpoints).stdout

    def leaving() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = document(run("status", "--json", masters=cluster.endpoints))["leaving"]
        return found

    with Session(cluster.endpoints, app="notice") as session:
        shuffle = session.register_map_shuffle(10, MAPS)  # whose files are not copied
        shuffle.commit([write_map(shuffle, each, 0, random_regions(each)) for each in range(MAPS)])
        worker = keeping(session)[0]
        begun = document(run("drain", worker.name, "--by", "3h", "--no-wait", "--json", masters=cluster.endpoints))
        assert begun["for"] == "removal"
        assert 10_700_000 < begun["workers"][0]["drain"]["left_ms"] <= 10_800_000
        run("drain", worker.name, "--no-wait", masters=cluster.endpoints)
        wait_until(lambda: [each["waits"] for each in leaving()] == ["it keeps data of 1 shuffle"], "its heartbeat")
        assert [(each["host"], each["reach"]) for each in leaving()] == [(worker.host, "unknown")]
        for what in ("status", "workers"):
            assert re.search(r"its host goes away in 2 h \d+ min: not known yet whether ready in time", shown(what)), (
                what
            )
        late = run("drain", worker.name, "--by", "1s", masters=cluster.endpoints)
        assert (late.returncode, "the time is over" in late.stderr) == (1, True)
        assert leaving()[0]["reach"] == "late"
        reported = run("status", masters=cluster.endpoints)
        assert (reported.returncode, "was to be away by now: not ready in time" in reported.stdout) == (0, True)
        shuffle.unregister()
        wait_until(lambda: leaving()[0]["reach"] == "reached", "the data to go")
        run("undrain", worker.name, masters=cluster.endpoints)
        assert leaving() == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("2h", 7200), ("18:30", 1800), ("17:59:30", 86370), ("18:00", 86400)]
)
def test_a_time_is_the_next_one_or_a_span(text: str, seconds: float) -> None:
    """At 18:00 half past six is in half an hour, and six tomorrow."""
    assert seconds_until(text, datetime(2026, 11, 22, 18, 0, tzinfo=UTC)) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0m", "-5m", "25:00", "5", "2026-11-22"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With what a time looks like."""
    with pytest.raises(ConfigError, match="time of day such as 18:30"):
        seconds_until(text, datetime(2026, 11, 22, 18, 0, tzinfo=UTC))


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["w9"], 1, "there are w1, w2, w3"),
        (["w1", "w2", "w3"], 1, "no other worker would take data"),
        ([], 2, "WORKER"),
        (["w1", "--for", "fun"], 2, "fun"),
    ],
)
def test_what_cannot_be_drained_is_reported(
    cluster: LocalCluster, words: list[str], status: int, sentence: str
) -> None:
    """Unknown and last workers are bad news, wrong words are usage; a sentence says why, a document too."""
    done = run("drain", *words, masters=cluster.endpoints)
    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr
    assert sentence in document(run("drain", *words, "--json", masters=cluster.endpoints), status)["error"]


def test_waiting_ends_when_the_worker_is_gone_or_cancelled(cluster: LocalCluster) -> None:
    """A worker that is lost, or whose drain somebody cancels, is bad news for whoever waits for it."""
    with Session(cluster.endpoints, app="cli") as session:
        fill(session)
        name = keeping(session)[0].name
        for trouble, sentence in (("cancel", "was cancelled"), ("kill", f"{name} is lost")):
            command = [*COMMAND, "drain", name, "--for", "removal", "--masters", cluster.endpoints]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                assert running.stderr is not None
                assert running.stderr.readline()
                if trouble == "cancel":
                    document(run("undrain", name, "--json", masters=cluster.endpoints))
                else:
                    next(worker for worker in cluster.workers if worker.name == name).kill()
                _, reported = running.communicate(timeout=SECONDS_MAX)
            assert running.returncode == 1
            assert sentence in reported


def test_no_leader_is_reported() -> None:
    """Without masters it says whom it asked, and leaves with 1."""
    done = run("drain", "w1", masters="127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr


def test_a_drain_is_looked_at_again_where_masters_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The drain goes on while nobody leads, so the wait for it does too, and says so once; the time of --by ends it."""
    found = pb.ListWorkersReply(workers=[pb.WorkerInfo(name="w1")])
    answers: list[pb.ListWorkersReply | RetryError] = []

    async def answer(*_: object) -> pb.ListWorkersReply:
        said = answers.pop(0)
        if isinstance(said, RetryError):
            raise said
        return said

    monkeypatch.setattr(draining, "answer", answer)
    monkeypatch.setattr(draining, "_LOOK_SECONDS", 0.0)
    client: Any = None
    answers[:] = [RetryError("there is no leader")] * 3 + [found]
    assert asyncio.run(draining._listed(client, math.inf)) == found
    assert capsys.readouterr().err.count("the drain goes on") == 1
    answers[:] = [RetryError("there is no leader")]
    with pytest.raises(RetryError, match="there is no leader"):
        asyncio.run(draining._listed(client, 0.0))
