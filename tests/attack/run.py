"""Each attack beside an honest client with TLS on, then all of them together: `python -m tests.attack.run`.

    python -m tests.attack.run [--seconds 60] [--only NAME,NAME]

Promises: what the honest client reads is exact; memory and descriptors of every server stay within BYTES_MAX and its
limit, and go back to within BACK_SHARE of what they were before, "before" being after a first attack of every kind; no
log has a traceback or is above LOG_BYTES_MAX. All that holds however slow the machine is: each attack is tried ASKS
times at least, an attacker that is refused begins again, and the honest client tries again what is refused for now. The
long form promises two things more, which a busy machine can miss: of the honest rounds one in a hundred takes at most
P99_FACTOR times what it takes on the idle cluster just before and after, and all is back within BACK_SECONDS. Exit 1 if
not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.client import LocalCluster, Session, local_cluster
from holdfast.client.cluster.server import Server, wait_until
from holdfast.common.errors import HoldfastError
from holdfast.common.limits import MIB
from holdfast.common.security.tokens import TokenKind
from holdfast.common.system.descriptors import raise_descriptor_limit
from tests.attack.catalogue import ATTACKS
from tests.attack.honest import Honest
from tests.attack.quota import USER_BYTES, USER_FILES
from tests.attack.target import cluster_of, credentials_of, facts_of, log_of, target_of, used
from tests.support.tree import ROOT

P99_FACTOR = 10.0
#: docs/operate/sizing.md: a master gets at least 1 GiB, a worker `worker.memory` and 200 MiB.
WORKER_MEMORY_MIB = 256
BYTES_MAX = {"master": 1024 * MIB, "worker": (WORKER_MEMORY_MIB + 200) * MIB}
BACK_SHARE = 1.2
BACK_SECONDS = 60.0
#: So often an attack is tried at least, however long that takes.
ASKS = 4
LOG_BYTES_MAX = 1_000_000
_LOOK_SECONDS = 0.5
#: The name under which all attacks go on together.
ALL = "all"


@dataclass
class Phase:
    """What came of one attack."""

    name: str
    #: seconds of each honest round while it went on, and on the idle cluster just before and after
    rounds: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    #: by server: most bytes and descriptors while it went on, and what was left afterwards
    most: dict[str, tuple[int, int]] = field(default_factory=dict)
    after: dict[str, tuple[int, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        def text(found: dict[str, tuple[int, int]]) -> str:
            return ", ".join(f"{name} {size // MIB} MiB {count} fd" for name, (size, count) in sorted(found.items()))

        made = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        speed = f"p99 {p99(self.rounds):.2f} s, idle {p99(self.idle):.2f} s"
        servers = f"most {text(self.most)}; after {text(self.after)}"
        return f"{self.name}: {len(self.rounds)} honest rounds, {speed}; {servers}; {made}"


def p99(seconds: list[float]) -> float:
    """What one round in a hundred takes at least; 0 for none."""
    return sorted(seconds)[-1 - len(seconds) // 100] if seconds else 0.0


@dataclass
class Report:
    """What came of a run."""

    phases: list[Phase] = field(default_factory=list)
    #: promises that were broken, each with what was found and what is allowed
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.problems, *map(str, self.phases)])

    @property
    def slow(self) -> list[str]:
        """Attacks under which the honest client was too slow."""
        return [
            f"speed: {each.name}: p99 {p99(each.rounds):.2f} s, at most {P99_FACTOR:.0f} times {p99(each.idle):.2f} s"
            for each in self.phases
            if p99(each.rounds) > P99_FACTOR * p99(each.idle)
        ]


def attacked(
    directory: Path,
    names: Iterable[str],
    seconds: float,
    *,
    back_seconds: float = BACK_SECONDS,
    processes_max: int = len(ATTACKS),
) -> Report:
    """Start a secured cluster and attack it: by each of `names` alone, and by all together under the name "all", which
    then share `processes_max` processes."""
    settings: dict[str, dict[str, object]] = {
        "worker": {"memory": f"{WORKER_MEMORY_MIB}MiB"},
        "quota": {"user_bytes": f"{USER_BYTES}B", "user_files": USER_FILES},
    }
    with (
        local_cluster(3, 2, dir=directory, settings=settings, secure=True) as cluster,
        Session(
            cluster.endpoints, app="alice", credentials=credentials_of(cluster, TokenKind.USER, b"alice")
        ) as session,
    ):
        honest = Honest(session)
        honest.rounds(_for(seconds / 4))  # caches and connections
        _phase(
            cluster, honest, ALL, seconds / 4, processes_max
        )  # what is filled once, such as caches and the heap of first use
        before = _all_used(cluster)
        report = Report()
        for name in names:
            phase = _phase(cluster, honest, name, seconds, processes_max)
            report.phases.append(phase)
            report.problems += _too_much(cluster, phase) + _back(cluster, phase, before, back_seconds)
        report.problems += _in_logs(cluster)
    return report


def _phase(cluster: LocalCluster, honest: Honest, name: str, seconds: float, processes_max: int) -> Phase:
    phase = Phase(name)
    chosen = list(ATTACKS) if name == ALL else [name]
    pids = {server.name: server.pid for server in cluster.servers}
    phase.idle += honest.rounds(_for(seconds / 4))
    with _watched(cluster, phase), ExitStack() as running:
        shares = filter(None, (chosen[first::processes_max] for first in range(processes_max)))
        attackers = [running.enter_context(_attacker(cluster, share, seconds)) for share in shares]
        phase.rounds = honest.rounds(lambda: all(each.poll() is not None for each in attackers))
        for each in attackers:
            phase.counts.update(_said(each))
    phase.idle += honest.rounds(_for(seconds / 4))
    for server in cluster.servers:
        if not server.running or server.pid != pids[server.name]:
            raise AssertionError(f"{phase}\n{name} ended {server.name}: {server.log_tail()[-2_000:]}")
    print(phase, flush=True)
    return phase


@contextmanager
def _attacker(cluster: LocalCluster, names: list[str], seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process that attacks for so long, and prints what it counted."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    # Attackers have hosts of their own; on this one they would mostly take the processor from the servers.
    command = [
        "nice",
        "-n",
        "19",
        sys.executable,
        "-m",
        "tests.attack.run",
        "--attack",
        ",".join(names),
        "--seconds",
        str(seconds),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(facts_of(cluster)))
            process.stdin.close()
            yield process
        finally:
            process.kill()


def _said(process: subprocess.Popen[str]) -> Counter[str]:
    assert process.stdout is not None
    assert process.stderr is not None
    out, errors = process.stdout.read(), process.stderr.read()
    if process.wait():
        raise AssertionError(f"an attacker failed: {errors[-4_000:]}")
    return Counter(json.loads(out))


@contextmanager
def _watched(cluster: LocalCluster, phase: Phase) -> Iterator[None]:
    """Note the most that each server used meanwhile."""
    over = threading.Event()

    def watch() -> None:
        while True:
            for name, (size, count) in _all_used(cluster).items():
                most = phase.most.get(name, (0, 0))
                phase.most[name] = max(most[0], size), max(most[1], count)
            if over.wait(_LOOK_SECONDS):
                return

    thread = threading.Thread(target=watch, name="attack-watch")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _all_used(cluster: LocalCluster) -> dict[str, tuple[int, int]]:
    return {server.name: used(server) for server in cluster.servers}


def _too_much(cluster: LocalCluster, phase: Phase) -> list[str]:
    """Servers that used more than their host is asked to give."""
    problems = []
    for server in cluster.servers:
        size, count = phase.most[server.name]
        size_max, count_max = BYTES_MAX[server.role], resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0]
        if size > size_max:
            problems.append(f"memory: {phase.name}: {server.name} used {size // MIB} MiB of {size_max // MIB}")
        if count >= count_max:
            problems.append(f"descriptors: {phase.name}: {server.name} had {count} of {count_max} open")
    return problems


def _back(cluster: LocalCluster, phase: Phase, before: dict[str, tuple[int, int]], seconds: float) -> list[str]:
    """Servers that still use more than before after so long."""

    def too_much(server: Server) -> bool:
        return any(now > BACK_SHARE * then for now, then in zip(used(server), before[server.name], strict=True))

    wait_until(lambda: not any(too_much(server) for server in cluster.servers), seconds)
    phase.after = _all_used(cluster)
    return [
        f"back: {phase.name}: {server.name} uses {phase.after[server.name]} (bytes, descriptors), at most {BACK_SHARE}"
        f" times {before[server.name]}, after {seconds:.0f} s"
        for server in cluster.servers
        if too_much(server)
    ]


def _in_logs(cluster: LocalCluster) -> list[str]:
    problems = []
    for server in cluster.servers:
        text = log_of(server)
        if "Traceback" in text:
            problems.append(f"log: {server.name} logged a traceback{text.partition('Traceback')[2][:2_000]}")
        if len(text) > LOG_BYTES_MAX:
            problems.append(f"log: {server.name} logged {len(text)} bytes of {LOG_BYTES_MAX}; the end is {text[-500:]}")
    return problems


def _for(seconds: float, asks: int = 0) -> Callable[[], bool]:
    """Whether so long has passed, and this was asked so often."""
    end, asked = time.monotonic() + seconds, itertools.count()
    return lambda: next(asked) >= asks and time.monotonic() >= end


async def _attack(names: list[str], seconds: float) -> Counter[str]:
    raise_descriptor_limit()
    cluster = cluster_of(json.load(sys.stdin))
    return sum(await asyncio.gather(*(_attack_by(name, cluster, seconds) for name in names)), Counter[str]())


async def _attack_by(name: str, cluster: LocalCluster, seconds: float) -> Counter[str]:
    """Attack until it is enough. Whom the cluster refuses or keeps waiting begins again: that breaks no promise."""
    until, counts = _for(seconds, ASKS), Counter[str]()
    while True:
        try:
            return counts + await ATTACKS[name](await target_of(cluster, name), until)
        except* (HoldfastError, OSError) as refused:
            counts[f"began again after {type(refused.exceptions[0]).__name__}"] += 1
        if until():
            return counts


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--only", default="", help="names of attacks, with commas; all and their sum otherwise")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        print(json.dumps(asyncio.run(_attack(arguments.attack.split(","), arguments.seconds))))
        return
    names = arguments.only.split(",") if arguments.only else [*ATTACKS, ALL]
    with tempfile.TemporaryDirectory(prefix="holdfast-attack-") as directory:
        report = attacked(Path(directory) / "cluster", names, arguments.seconds)
    problems = report.problems + report.slow
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(report.phases)} attacks, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
