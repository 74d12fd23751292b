"""Each attack beside an honest client with TLS on, then all of them together: `python -m tests.attack.run`.

    python -m tests.attack.run [--seconds 60] [--only NAME,NAME]

Promises: what the honest client reads is exact; of its rounds one in a hundred takes at most P99_FACTOR times what it
takes on the idle cluster; memory and descriptors of every server stay within BYTES_MAX and its limit, and are within
BACK_SHARE of what they were before a minute later, "before" being after a first short attack of every kind; no log has
a traceback or is above LOG_BYTES_MAX. Exit 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
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
from holdfast.common.limits import MIB
from holdfast.common.security.tokens import TokenKind
from tests.attack.catalogue import ATTACKS
from tests.attack.honest import Honest
from tests.attack.quota import USER_BYTES, USER_FILES
from tests.attack.target import cluster_of, credentials_of, facts_of, log_of, target_of, used
from tests.support.tree import ROOT

P99_FACTOR = 10.0
#: docs/operations.md, "Sizing": a master gets at least 1 GiB, a worker `worker.memory` and 200 MiB.
WORKER_MEMORY_MIB = 256
BYTES_MAX = {"master": 1024 * MIB, "worker": (WORKER_MEMORY_MIB + 200) * MIB}
BACK_SHARE = 1.2
BACK_SECONDS = 60.0
LOG_BYTES_MAX = 1_000_000
_LOOK_SECONDS = 0.5
#: The name under which all attacks go on together.
ALL = "all"


@dataclass
class Phase:
    """What came of one attack."""

    name: str
    p99: float = 0.0
    rounds: int = 0
    #: by server: most bytes and descriptors while it went on, and what was left afterwards
    most: dict[str, tuple[int, int]] = field(default_factory=dict)
    after: dict[str, tuple[int, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        def text(found: dict[str, tuple[int, int]]) -> str:
            return ", ".join(f"{name} {size // MIB} MiB {count} fd" for name, (size, count) in sorted(found.items()))

        made = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        head = f"{self.name}: {self.rounds} honest rounds, p99 {self.p99:.2f} s"
        return f"{head}; most {text(self.most)}; after {text(self.after)}; {made}"


@dataclass
class Report:
    """What came of a run."""

    idle: Phase
    phases: list[Phase] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def slow(self) -> list[str]:
        """Attacks under which the honest client was too slow."""
        most = P99_FACTOR * self.idle.p99
        return [
            f"{each.name}: p99 {each.p99:.2f} s, idle {self.idle.p99:.2f} s" for each in self.phases if each.p99 > most
        ]


def attacked(directory: Path, names: Iterable[str], seconds: float) -> Report:
    """Start a secured cluster and attack it: by each of `names` alone, and by all together under the name "all"."""
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
        idle = Phase("idle")
        _note(idle, honest.rounds(_for(seconds)))
        print(idle, flush=True)
        _phase(cluster, honest, ALL, seconds / 4)  # what is filled once, such as caches and the heap of first use
        honest.rounds(_for(seconds / 4))
        before = _all_used(cluster)
        report = Report(idle)
        for name in names:
            phase = _phase(cluster, honest, name, seconds)
            report.phases.append(phase)
            report.problems += _too_much(cluster, phase) + _back(cluster, phase, before)
        report.problems += _in_logs(cluster)
    return report


def _phase(cluster: LocalCluster, honest: Honest, name: str, seconds: float) -> Phase:
    phase = Phase(name)
    chosen = list(ATTACKS) if name == ALL else [name]
    pids = {server.name: server.pid for server in cluster.servers}
    with _watched(cluster, phase), ExitStack() as running:
        attackers = [running.enter_context(_attacker(cluster, each, seconds)) for each in chosen]
        _note(phase, honest.rounds(lambda: all(each.poll() is not None for each in attackers)))
        for each in attackers:
            phase.counts.update(_said(each))
    for server in cluster.servers:
        if not server.running or server.pid != pids[server.name]:
            raise AssertionError(f"{name} ended {server.name}: {server.log_tail()[-2_000:]}")
    print(phase, flush=True)
    return phase


@contextmanager
def _attacker(cluster: LocalCluster, name: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
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
        name,
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
    descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for server in cluster.servers:
        size, count = phase.most[server.name]
        if size > BYTES_MAX[server.role]:
            problems.append(f"{phase.name}: {server.name} used {size // MIB} MiB")
        if count >= descriptors_max:
            problems.append(f"{phase.name}: {server.name} had {count} descriptors open")
    return problems


def _back(cluster: LocalCluster, phase: Phase, before: dict[str, tuple[int, int]]) -> list[str]:
    """Servers that still use more than before after a minute."""

    def too_much(server: Server) -> bool:
        return any(now > BACK_SHARE * then for now, then in zip(used(server), before[server.name], strict=True))

    wait_until(lambda: not any(too_much(server) for server in cluster.servers), BACK_SECONDS)
    phase.after = _all_used(cluster)
    return [
        f"{phase.name}: {server.name} uses {phase.after[server.name]} bytes and descriptors, not {before[server.name]}"
        for server in cluster.servers
        if too_much(server)
    ]


def _in_logs(cluster: LocalCluster) -> list[str]:
    problems = []
    for server in cluster.servers:
        text = log_of(server)
        if "Traceback" in text:
            problems.append(f"{server.name} logged a traceback{text.partition('Traceback')[2][:2_000]}")
        if len(text) > LOG_BYTES_MAX:
            problems.append(f"{server.name} logged {len(text)} bytes, the end is {text[-500:]}")
    return problems


def _for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _note(phase: Phase, seconds: list[float]) -> None:
    phase.rounds = len(seconds)
    phase.p99 = sorted(seconds)[-1 - len(seconds) // 100]


async def _attack(name: str, seconds: float) -> Counter[str]:
    target = await target_of(cluster_of(json.load(sys.stdin)), name)
    return await ATTACKS[name](target, _for(seconds))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--only", default="", help="names of attacks, with commas; all and their sum otherwise")
    parser.add_argument("--attack", choices=sorted(ATTACKS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        print(json.dumps(asyncio.run(_attack(arguments.attack, arguments.seconds))))
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
