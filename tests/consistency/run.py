"""Runs the harness: a cluster, clients, a schedule of faults, and the verdict. Exit status 1 if anything was wrong.

    python -m tests.consistency.run [--minutes 30] [--seed S] [--clients 3] [--dir DIR] [--plain]

As root it runs in network and mount namespaces of its own; otherwise, or with --plain, without what needs them. The
histories, the servers' logs and the report stay in DIR where it is given, and where something was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import worker_status
from holdfast.client.session import Session
from holdfast.common.errors import HoldfastError
from holdfast.common.limits import MIB
from holdfast.common.system import process
from tests.consistency import ground
from tests.consistency.client import LEASE_SECONDS, OPERATION_SECONDS_MAX, Client, read_as_guest
from tests.consistency.faults import Hand
from tests.consistency.generation import GRACE_SECONDS
from tests.consistency.history import History, Line, lines_of
from tests.consistency.judge import Verdict
from tests.consistency.others import Others
from tests.support.tree import ROOT

_MEMORY_MIB = 128
#: Beside what its buffers may hold, a worker or master has its program, its indexes, and what the allocator keeps.
_RSS_BYTES_MAX = (_MEMORY_MIB + 320) * MIB
_DESCRIPTORS_MAX = 600
#: What a server may keep when nobody uses it any more: its own files, and connections between servers.
_DESCRIPTORS_LEFT_MAX = 150
#: What remains of a worker's directory when all is forgotten: the push log and its spare, which are used again.
_BYTES_LEFT_MAX = 80 * MIB
_LOOK_SECONDS = 2.0
_START_SECONDS = 2.0
_FINAL_SECONDS_MAX = 300.0
#: A machine that is busy with something else commits little in the time of a short run.
_LEAST_SECONDS_MAX = 120.0
_DELETED_SECONDS_MAX = LEASE_SECONDS + 120.0
_SETTINGS: Sections = {
    "placement": {"flap_starts": 1_000_000},
    "lease": {"worker": "3s", "heartbeat": "500ms", "deletion_grace": "2s"},
    "worker": {
        "return_grace": f"{int(GRACE_SECONDS)}s",
        "memory": f"{_MEMORY_MIB}MiB",
        "soft_split": "2MiB",
        "hard_split": "4MiB",
    },
}


@dataclass
class Report:
    """What came of a run."""

    seed: int
    directory: Path
    left_out: str
    verdict: Verdict | None = None
    problems: list[str] = field(default_factory=list)
    #: the most that any server held, by what
    most: dict[str, int] = field(default_factory=dict)

    @property
    def violations(self) -> list[str]:
        """Everything that was wrong."""
        return [*self.problems, *(self.verdict.violations if self.verdict else ["there is no verdict"])]

    @property
    def good(self) -> bool:
        """Nothing was wrong, and something was read."""
        return not self.violations and self.verdict is not None and self.verdict.counts["read: exact"] > 0

    def __str__(self) -> str:
        counts = dict(sorted(self.verdict.counts.items())) if self.verdict else {}
        done = [span.what for span in self.verdict.spans] if self.verdict else []
        return "\n".join(
            [
                f"consistency, seed {self.seed}: {'good' if self.good else 'BAD'}",
                *([self.left_out] if self.left_out else []),
                f"  operations: {counts}",
                f"  faults: { {what: done.count(what) for what in sorted(set(done))} }",
                f"  at most: {self.most}",
                *(f"  WRONG {one}" for one in self.violations),
                *([] if self.good else [f"  histories and logs are in {self.directory}"]),
            ]
        )


class ClientProcess:
    """A handle on a client, for the hand that stops and kills it."""

    role = "client"

    def __init__(self, name: str, command: list[str], log: Path, launcher: ThreadPoolExecutor) -> None:
        self.name = name
        self._process = launcher.submit(process.spawn, command, log=log, directory=ROOT).result()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process.poll() is None


class Run:
    """One run, in a cluster that is there."""

    def __init__(
        self, cluster: LocalCluster, where: ground.Ground, report: Report, launcher: ThreadPoolExecutor
    ) -> None:
        self._cluster = cluster
        self._ground = where
        self._report = report
        self._launcher = launcher
        self._main = Client(report.directory, "main", report.seed, cluster.endpoints)
        self._clients: list[ClientProcess] = []
        self._over = threading.Event()

    @property
    def history(self) -> History:
        """Of this process."""
        return self._main.history

    def run(self, seconds: float, clients: int, without: Collection[str], least: int) -> None:
        """Everything up to the verdict. Raises what a server that does not come back is told of."""
        with Session(self._cluster.endpoints, app="harness") as session:
            self.history.say(say="workers", ids={each.worker: each.name for each in session.workers()})
        for number in range(clients):
            self._start(f"c{number}.0")
        looking = threading.Thread(target=self._look)
        looking.start()
        try:
            self._over.wait(_START_SECONDS)
            hand = Hand(self._cluster, self._ground, self.history, lambda: list(self._clients), self._replace)
            hand.run(self._report.seed, seconds, without)
            wait_until(lambda: self._commits() >= least, _LEAST_SECONDS_MAX)
            self._read_all()
            self._all_gone()
        finally:
            self._over.set()
            looking.join()
            for client in self._clients:
                client.kill()

    def _start(self, name: str) -> None:
        words = [str(self._report.directory), name, str(self._report.seed), self._cluster.endpoints, *self._ground.way]
        command = [sys.executable, "-m", "tests.consistency.client", *words]
        log = self._report.directory / f"{name}.log"
        self._clients.append(ClientProcess(name, command, log, self._launcher))

    def _replace(self, killed: ClientProcess) -> None:
        """Another client in place of one that was killed."""
        self._clients.remove(killed)
        name, _, number = killed.name.partition(".")
        self._start(f"{name}.{int(number) + 1}")

    # The end.

    def _read_all(self) -> None:
        """All is quiet: the clients read what they have, then this process reads it, too."""
        self._cluster.wait_ready(90.0)
        (self._report.directory / "quiet").touch()
        self.history.say(say="quiet")

        def done() -> bool:
            return all(not client.running or self._has_read(client) for client in self._clients)

        if not wait_until(done, _FINAL_SECONDS_MAX):
            late = [client.name for client in self._clients if not self._has_read(client)]
            self._report.problems.append(f"{late} have not read everything {_FINAL_SECONDS_MAX:.0f} s after the faults")
        self._report.problems += [f"{each.name} has ended" for each in self._clients if not each.running]
        living = {app for client in self._clients for app in self._living(client)}
        others = Others(self._report.directory)
        others.look()
        for line in others.committed():
            if line["app"] in living:
                try:
                    read_as_guest(self._main, line, "final")
                except HoldfastError:
                    pass  # the history has it, and the verdict will
        self.history.say(say="all read")

    def _commits(self) -> int:
        threading.Event().wait(0.2)
        lines = _all_lines(self._report.directory)
        return sum(line.get("op") == "manifest" for line in lines)

    def _has_read(self, client: ClientProcess) -> bool:
        threading.Event().wait(0.1)
        said = [line.get("say") for line in self._lines_of(client)]
        return "has read all" in said and ("takes over" not in said or "has read all of" in said)

    def _living(self, client: ClientProcess) -> Iterator[str]:
        """The applications that a client has: its own, and one that it took over."""
        yield f"{client.name}-long"
        yield from (line["app"] for line in self._lines_of(client) if line.get("say") == "takes over")

    def _lines_of(self, client: ClientProcess) -> list[Line]:
        return lines_of(self._report.directory / f"{client.name}.history")

    def _all_gone(self) -> None:
        """Applications end; their bytes go, and what servers hold becomes little."""
        (self._report.directory / "end").touch()
        if not wait_until(lambda: not any(client.running for client in self._clients), OPERATION_SECONDS_MAX):
            self._report.problems.append("clients do not end")
        if not wait_until(lambda: not self._left(), _DELETED_SECONDS_MAX):
            self._report.problems.append(f"still there when everything was dropped: {self._left()}")
        if not wait_until(lambda: not self._held(), 30.0):
            self._report.problems.append(f"still open when nobody uses anything: {self._held()}")

    def _left(self) -> dict[str, Any]:
        """Files of shuffles, and bytes, by worker."""
        threading.Event().wait(0.2)
        found: dict[str, Any] = {}
        for worker in self._cluster.workers:
            data = self._cluster.directory / worker.name / "data"
            files = [f"{folder}/{name}" for folder, _, names in os.walk(data) for name in names]
            (reported,) = worker_status(worker.http)["directories"]
            if files or reported["used_bytes"] > _BYTES_LEFT_MAX:
                found[worker.name] = {"files": files[:5], "used_bytes": reported["used_bytes"]}
        return found

    def _held(self) -> dict[str, int]:
        threading.Event().wait(0.2)
        held = {server.name: _descriptors(server.pid) for server in self._cluster.servers}
        self._report.most["descriptors at the end"] = max(held.values())
        return {name: count for name, count in held.items() if count > _DESCRIPTORS_LEFT_MAX}

    def _look(self) -> None:
        """Memory and descriptors of servers, all the time; a thread."""
        while not self._over.wait(_LOOK_SECONDS):
            for server in self._cluster.servers:
                try:
                    held = {"rss": _rss(server.pid), "descriptors": _descriptors(server.pid)}
                except (OSError, StopIteration):
                    continue  # it is down
                for what, limit in (("rss", _RSS_BYTES_MAX), ("descriptors", _DESCRIPTORS_MAX)):
                    name = f"{what} of a {server.role}"
                    self._report.most[name] = max(self._report.most.get(name, 0), held[what])
                    if held[what] > limit:
                        self.history.say(say="unwell", server=server.name, **held)


def _rss(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def harness(
    seed: int,
    seconds: float,
    directory: Path,
    *,
    clients: int = 3,
    plain: bool = True,
    without: Collection[str] = (),
    commits: int = 0,
) -> Report:
    """Run it once, `without` some of the faults, until there were so many commits as well; the report has the verdict.
    The directory is the caller's."""
    where: ground.Ground = ground.Plain() if plain else ground.Namespaces()
    report = Report(seed, directory, where.left_out)
    own = {name: _merged(where.own.get(name, {}), clock(seed, name)) for name in ground.NAMES}
    with ThreadPoolExecutor(1, thread_name_prefix="clients") as launcher:
        try:
            with local_cluster(
                ground.MASTERS, ground.WORKERS, directory / "cluster", _SETTINGS, own=own, around=where.around
            ) as cluster:
                Run(cluster, where, report, launcher).run(seconds, clients, without, commits)
        except HoldfastError as error:
            report.problems.append(f"{type(error).__name__}: {error}")
    report.verdict = Verdict(
        _all_lines(directory), grace=GRACE_SECONDS, lease=LEASE_SECONDS, operation_max=OPERATION_SECONDS_MAX
    )
    (directory / "report").write_text(f"{report}\n", encoding="utf-8")
    return report


def clock(seed: int, name: str) -> Sections:
    """The clock of a master: off by minutes, and jumping to and fro; none is as far from another's as the masters
    remember answers (15 minutes), beyond which calls may be refused as too old."""
    if not name.startswith("m"):
        return {}
    chance = random.Random(f"{seed}/{name}/clock")
    offset, jump = chance.randrange(6 * 60), chance.choice((-1, 1)) * chance.randrange(30, 4 * 60)
    every = chance.randrange(3_000, 12_000)
    jumping = {"clock_jump": f"{jump}s", "clock_jump_every": f"{every}ms"}
    return {"faults": {"enabled": True, "clock_offset": f"{offset}s", **jumping}}


def _merged(*layers: Sections) -> Sections:
    """Sections of one server, key by key."""
    found: dict[str, dict[str, object]] = {}
    for layer in layers:
        for section, keys in layer.items():
            found.setdefault(section, {}).update(keys)
    return found


def _all_lines(directory: Path) -> Iterator[Line]:
    for path in sorted(directory.glob("*.history")):
        yield from lines_of(path)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.consistency.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--plain", action="store_true", help="on loopback, without namespaces, also as root")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    if not given.plain:
        ground.enter_own_namespaces([sys.executable, "-m", "tests.consistency.run", *sys.argv[1:]])
    plain = given.plain or not ground.may_have_namespaces()
    directory = given.dir or Path(tempfile.mkdtemp(prefix="holdfast-consistency-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"consistency, seed {seed}, {given.minutes:g} minutes, in {directory}", flush=True)
    report = harness(seed, given.minutes * 60, directory, clients=given.clients, plain=plain)
    print(report)
    if not report.good:
        print(f"again: tox -e consistency -- --minutes {given.minutes:g} --seed {seed}")
    elif given.dir is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
