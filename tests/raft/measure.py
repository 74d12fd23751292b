"""Measures the replicated log on three real processes: `python -m tests.raft.measure [--kills N] [--tls]`.

Prints latency of one durable command at a time, commands a second with many in flight, seconds from kill -9 of the
leader to the next accepted command, and the CPU an idle node uses.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from tests.raft.process import Cluster


def quantile(values: list[float], share: float) -> float:
    """Nearest-rank quantile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def failover(cluster: Cluster, kills: int) -> list[float]:
    """Seconds from kill -9 of the leader to the next command accepted by anybody, for each kill."""
    times = []
    for number in range(kills):
        leader = cluster.leader()
        cluster.settled()
        others = [node for node in cluster.nodes if node is not leader]
        start = time.perf_counter()
        leader.kill()
        accepted = False
        while not accepted:
            for node in others:
                try:
                    node.ask("propose", f"after kill {number} {time.perf_counter()}").result(1.0)
                except (RuntimeError, TimeoutError):
                    continue
                accepted = True
                break
        times.append(time.perf_counter() - start)
        leader.start()
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.raft.measure", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to watch idle nodes")
    parser.add_argument("--serial", type=int, default=2000)
    parser.add_argument("--flood", type=int, default=30_000)
    parser.add_argument("--tls", action="store_true", help="between the nodes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory), tls=args.tls) as cluster:
        leader = cluster.leader()
        cluster.settled()
        before = [node.ask("status").result(5)["cpu"] for node in cluster.nodes]
        threading.Event().wait(args.seconds)
        after = [node.ask("status").result(5)["cpu"] for node in cluster.nodes]
        shares = [100 * (b - a) / args.seconds for a, b in zip(before, after, strict=True)]
        roles = [node.ask("status").result(5)["role"] for node in cluster.nodes]
        print("idle CPU, % of a core:", ", ".join(f"{r} {s:.2f}" for r, s in zip(roles, shares, strict=True)))
        times = leader.ask("serial", args.serial).result(120)
        p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
        print(f"one at a time, {len(times)} commands: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        for inflight in (64, 1000):
            seconds = leader.ask("flood", [args.flood, inflight]).result(120)
            print(f"{inflight} in flight: {args.flood / seconds:,.0f} commands/s")
        kills = failover(cluster, args.kills)
        if kills:
            print(
                f"kill -9 of the leader, {len(kills)} times, to the next accepted command: "
                f"p50 {quantile(kills, 0.5):.2f} s, p99 {quantile(kills, 0.99):.2f} s, max {max(kills):.2f} s"
            )


if __name__ == "__main__":
    main()
