"""A worker's numbers in the format of Prometheus; docs/worker.md lists the names. Called by http.py."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from holdfast.worker.server.status import Status

_PREFIX = "holdfast_worker_"
_DIRECTORY_GAUGES = ("capacity_bytes", "used_bytes", "free_bytes", "healthy", "errors", "flush_us", "fetch_us")


class Exposition(Collector):
    """Turns Status into text when it is scraped; keeps no numbers of its own."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, status: Status) -> None:
        self._status = status
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """The whole exposition."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric (called by the registry)."""
        for name, value in self._status.totals().items():
            yield CounterMetricFamily(_PREFIX + name, f"See docs/worker.md, {name}.", value=value)
        for name, value in self._status.gauges().items():
            yield GaugeMetricFamily(_PREFIX + name, f"See docs/worker.md, {name}.", value=value)
        directories = self._status.store.directories()
        for name in _DIRECTORY_GAUGES:
            family = GaugeMetricFamily(f"{_PREFIX}directory_{name}", f"See docs/worker.md, {name}.", labels=["path"])
            for found in directories:
                family.add_metric([str(found.path)], getattr(found, name))
            yield family
