"""A worker's numbers in the format of Prometheus; docs/operate/metrics.md lists the names. Called by http.py."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from holdfast.common.security.server import ServerSecurity
from holdfast.worker.server.observe.metric_help import CAUSES, COUNTERS, DIRECTORY, GAUGES, PROCESS
from holdfast.worker.server.observe.status import WorkerStatus

_PREFIX = "holdfast_worker_"


class Exposition(Collector):
    """Turns Status into text when it is scraped; keeps no numbers of its own."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, status: WorkerStatus) -> None:
        self._status = status
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        status = self._status
        build = GaugeMetricFamily(f"{_PREFIX}build_info", PROCESS["build_info"], labels=["version"])
        build.add_metric([status.context.standing.addresses.version], 1)
        yield build
        credentials = status.context.standing.credentials
        ends = credentials.certificate_ends_s if isinstance(credentials, ServerSecurity) else 0
        process = {"certificate_expires_seconds": ends, "faults_enabled": bool(status.context.faults.active())}
        for name, value in process.items():
            yield GaugeMetricFamily(_PREFIX + name, PROCESS[name], value=value)
        for name, value in status.totals().items():
            yield CounterMetricFamily(_PREFIX + name, COUNTERS[name], value=value)
        for name, value in status.gauges().items():
            assert name in GAUGES, f"say in worker/server/observe/metric_help.py what {name} means"
            yield GaugeMetricFamily(_PREFIX + name, GAUGES[name], value=value)
        for name, causes in status.context.counters.causes().items():
            counted = CounterMetricFamily(_PREFIX + name, CAUSES[name], labels=["status"])
            for cause, count in causes.items():
                counted.add_metric([cause], count)
            yield counted
        directories = status.context.store.directories()
        for name, meaning in DIRECTORY.items():
            family = GaugeMetricFamily(f"{_PREFIX}directory_{name}", meaning, labels=["path"])
            for found in directories:
                family.add_metric([str(found.path)], getattr(found, name))
            yield family
