"""The masters' metrics for Prometheus; metric_help.py says what they mean, and docs/operate/metrics.md lists them.

Rules: no label takes values from clients: methods and statuses are fixed sets, so the number of series is bounded.
Gauges are read when they are scraped. Called by handlers.py (counts) and http.py (the text).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.common.net.methods import METHODS
from holdfast.common.statuses import Status
from holdfast.master.observe.metric_help import CALL_SECONDS, CALLS, GAUGES, LABELLED

#: Seconds; a command is a few milliseconds, a long poll up to 30 s.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Metrics:
    """One registry per master process."""

    def __init__(self, collector: Collector) -> None:
        """`collector` yields all but what is counted here, whenever metrics are scraped."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._calls = Counter("holdfast_master_calls", CALLS, ["method", "status"], registry=self._registry)
        seconds = Histogram(
            "holdfast_master_call_seconds", CALL_SECONDS, ["method"], registry=self._registry, buckets=_BUCKETS
        )
        self._seconds = {name: seconds.labels(name) for name in METHODS}
        self._counts: dict[tuple[str, Status], Counter] = {}
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def answered(self, method: str, status: Status, seconds: float) -> None:
        """Count one call."""
        count = self._counts.get((method, status))
        if count is None:
            count = self._counts[(method, status)] = self._calls.labels(method, status.name)
        count.inc()
        self._seconds[method].observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


def gauge(name: str, value: float) -> Metric:
    """A number of this master, with what it means."""
    assert name in GAUGES, f"say in master/observe/metric_help.py what {name} means"
    return GaugeMetricFamily(f"holdfast_master_{name}", GAUGES[name], value=float(value))


def labelled(name: str, values: Iterable[tuple[str, float]]) -> Metric:
    """The same by a label."""
    label, text = LABELLED[name]
    family = GaugeMetricFamily(f"holdfast_master_{name}", text, labels=[label])
    for of, value in values:
        family.add_metric([of], float(value))
    return family
