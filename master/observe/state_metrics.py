"""What Prometheus reads of a master beyond its counts: peers, workers lost, room by tier, what fails, events.

Rules: read when it is scraped, a few milliseconds for a thousand workers. Labels are names of the configuration or
words of ours: masters, tiers, kinds of events; never what a client or a worker chose. docs/metrics.md lists them all.
Called by metrics.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.common.version import VERSION
from holdfast.master.core.state import bounds
from holdfast.master.core.state.state import State
from holdfast.master.leader.leader import Leader

_PREFIX = "holdfast_master_"
#: What a worker calls a tier otherwise is none of ours.
_TIERS = ("MEMORY", "SSD", "HDD", "DFS", "other")


class StateMetrics(Collector):
    """Reads what `leader` knows."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        yield _labelled("build_info", "1, with the version as a label", "version", [(VERSION, 1)])
        yield from self._raft()
        lost, silent = self._leader.node.local(lambda machine: _lost_and_silent(machine.state))
        yield _gauge("workers_lost", "Workers lost that had not been drained", lost)
        yield _gauge("applications_silent", "Applications of which every lease is over", silent)
        yield _gauge("array_bytes_max", "Bound of holdfast_master_array_bytes", bounds.ARRAY_BYTES_MAX)
        security = self._leader.security
        ends = security.certificate_ends_s if security is not None else 0
        yield _gauge("certificate_expires_seconds", "When this server's certificate ends; 0 without security", ends)
        yield _gauge("faults_enabled", "1 while [faults] is on", self._leader.config.faults.enabled)
        events = CounterMetricFamily(_PREFIX + "events", "Things that happened", labels=["event"])
        for event, count in self._leader.events.counts().items():
            events.add_metric([event.dotted], count)
        yield events
        yield from self._heard()

    def _raft(self) -> Iterator[Metric]:
        status = self._leader.node.status()
        peers = sorted(status.peers.items())
        yield _gauge("peers", "Other masters in the configuration", len(peers))
        yield _gauge("leader_known", "1 while this master knows of a leader", bool(status.leader))
        yield _gauge("snapshot_index", "Raft index of the last snapshot", status.snapshot_index)
        connected = [(name, peer.connected) for name, peer in peers]
        yield _labelled("peer_connected", "1 while that master is connected", "peer", connected)
        lags = [(name, peer.lag) for name, peer in peers] if status.role == "leader" else []
        yield _labelled("peer_lag_entries", "On the leader: entries that master is behind", "peer", lags)

    def _heard(self) -> Iterator[Metric]:
        """On the leader: sums over the last heartbeats of living workers."""
        rooms = {tier: [0, 0] for tier in _TIERS}
        failing = full = away = push = fetch = 0
        if self._leader.serving:
            living = self._leader.node.local(
                lambda machine: {each.id: each.incarnation for each in machine.state.workers.values() if each.alive}
            )
            for number, report in list(self._leader.reports.items()):
                if living.get(number) != report.incarnation:
                    continue
                push, fetch = push + report.rates.push, fetch + report.rates.fetch
                for disk in report.heartbeat.directories:
                    room = rooms.get(disk.tier) or rooms["other"]
                    room[0] += disk.used_bytes
                    room[1] += disk.free_bytes
                    failing += bool(disk.problem)
                    full += bool(disk.full)
                if report.heartbeat.HasField("dfs"):
                    rooms["DFS"][0] += report.heartbeat.dfs.bytes
                    away += bool(report.heartbeat.dfs.problem)
        shown = [(tier, room) for tier, room in rooms.items() if any(room)]
        yield _labelled(
            "tier_used_bytes", "On the leader: bytes used", "tier", [(tier, room[0]) for tier, room in shown]
        )
        yield _labelled(
            "tier_free_bytes", "On the leader: bytes free", "tier", [(tier, room[1]) for tier, room in shown]
        )
        yield _gauge("directories_failing", "On the leader: directories that cannot be used", failing)
        yield _gauge("directories_full", "On the leader: directories that take no more", full)
        yield _gauge("workers_dfs_failing", "On the leader: workers that cannot use the DFS", away)
        yield _gauge("push_bytes_per_second", "On the leader: bytes a second pushed to all workers", push)
        yield _gauge("fetch_bytes_per_second", "On the leader: bytes a second fetched from all workers", fetch)


def _lost_and_silent(state: State) -> tuple[int, int]:
    lost = sum(not worker.alive and not worker.draining_ms for worker in state.workers.values())
    silent = sum(all(lease.marked_ms for lease in each.leases) for each in state.applications.values())
    return lost, silent


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, text, value=float(value))


def _labelled(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=[label])
    for of, value in values:
        family.add_metric([of], float(value))
    return family
