"""What Prometheus reads of a master beyond its counts: peers, workers lost, room by tier, what fails, events.

Rules: read when it is scraped, a few milliseconds for a thousand workers. Labels are names of the configuration or
words of ours: masters, tiers, kinds of events; never what a client or a worker chose. metrics.md lists them all.
Called by metrics.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.common.version import VERSION
from holdfast.common.worker_states import LOST
from holdfast.master.core.state import bounds
from holdfast.master.core.state.state import State
from holdfast.master.leader.leader import Leader
from holdfast.master.observe.adherence import AdherenceCount
from holdfast.master.observe.metric_help import EVENTS
from holdfast.master.observe.metrics import gauge, labelled

#: Lost workers that have a series of their own.
_LOST_NAMED = 100
#: What a worker calls a tier otherwise is none of ours.
_TIERS = ("MEMORY", "SSD", "HDD", "DFS", "other")


class StateMetrics(Collector):
    """Reads the state of `leader`, and the numbers of `gauges` by name."""

    def __init__(
        self, leader: Leader, gauges: Callable[[], Iterable[tuple[str, float]]], adherence: AdherenceCount
    ) -> None:
        self._leader, self._gauges, self._adherence = leader, gauges, adherence

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        for name, value in self._gauges():
            yield gauge(name, value)
        yield labelled("build_info", [(VERSION, 1)])
        yield from self._raft()
        lost, silent = self._leader.node.local(lambda machine: _lost_and_silent(machine.state))
        yield gauge("workers_lost", len(lost))
        yield labelled("worker_lost", [(str(each), 1) for each in lost[:_LOST_NAMED]])
        yield gauge("applications_silent", silent)
        yield gauge("array_bytes_max", bounds.ARRAY_BYTES_MAX)
        security = self._leader.security
        ends = security.certificate_ends_s if security is not None else 0
        yield gauge("certificate_expires_seconds", ends)
        yield gauge("faults_enabled", self._leader.config.faults.enabled)
        events = CounterMetricFamily("holdfast_master_events", EVENTS, labels=["event"])
        for event, count in self._leader.events.counts().items():
            events.add_metric([event.dotted], count)
        yield events
        adhering = self._adherence.found._asdict() if self._leader.serving else {}
        yield labelled("open_partitions", adhering.items())
        yield gauge("open_epochs_short", self._adherence.short)
        yield labelled("fallbacks", self._leader.fallbacks.items())
        yield from self._heard()

    def _raft(self) -> Iterator[Metric]:
        status = self._leader.node.status()
        peers = sorted(status.peers.items())
        yield gauge("peers", len(peers))
        yield gauge("leader_known", bool(status.leader))
        yield gauge("snapshot_index", status.snapshot_index)
        connected = [(name, peer.connected) for name, peer in peers]
        yield labelled("peer_connected", connected)
        lags = [(name, peer.lag) for name, peer in peers] if status.role == "leader" else []
        yield labelled("peer_lag_entries", lags)

    def _heard(self) -> Iterator[Metric]:
        """On the leader: sums over the last heartbeats of living workers."""
        by_tier = {tier: [0, 0] for tier in _TIERS}
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
                    sums = by_tier.get(disk.tier) or by_tier["other"]
                    sums[0] += disk.used_bytes
                    sums[1] += disk.free_bytes
                    failing += bool(disk.problem)
                    full += bool(disk.full)
                if report.heartbeat.HasField("dfs"):
                    by_tier["DFS"][0] += report.heartbeat.dfs.bytes
                    away += bool(report.heartbeat.dfs.problem)
        shown = [(tier, sums) for tier, sums in by_tier.items() if any(sums)]
        yield labelled("tier_used_bytes", [(tier, sums[0]) for tier, sums in shown])
        yield labelled("tier_free_bytes", [(tier, sums[1]) for tier, sums in shown])
        yield gauge("directories_failing", failing)
        yield gauge("directories_full", full)
        yield gauge("workers_dfs_failing", away)
        yield gauge("push_bytes_per_second", push)
        yield gauge("fetch_bytes_per_second", fetch)


def _lost_and_silent(state: State) -> tuple[list[int], int]:
    lost = [each for each in sorted(state.not_alive) if state.workers[each].state == LOST]
    return lost, sum(each.silent for each in state.applications.values())
