"""Makes docs/operate/metrics.md from the help texts of masters and workers. Called by tests/write_docs.py."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.master.observe import metric_help as masters
from holdfast.worker.server.observe import metric_help as workers

#: (name, type, labels, meaning)
Row = tuple[str, str, str, str]
_INTRODUCTION = """# Metrics

Made by `python -m tests.write_docs` from `master/observe/metric_help.py` and `worker/server/observe/metric_help.py`.

Every master and worker serves `GET /metrics` on its HTTP port, in Prometheus' text format.

* Type: names in `_total` are counters; all others are gauges unless marked *histogram*. A gauge marked *grows* starts
  at 0 with the process and only grows: use `increase()` and `rate()`. A second name with `_max` is the limit of the
  first.
* Labels: clients never set them. `method`, `status`: [protocol.md](../internals/protocol.md); `event`:
  [log_events.md](log_events.md); `tier`: `MEMORY`, `SSD`, `HDD`, `DFS`, `other`; `peer`, `path`: of the configuration.
* Metrics of the leader are 0 or absent on followers: take `max` or `sum` over masters.
* Single shuffles, applications and users: [monitoring.md](monitoring.md). Alerts: deploy/prometheus
  ([runbooks.md](runbooks.md)). Dashboard: deploy/grafana/holdfast.json.

```yaml
scrape_configs:
  - job_name: holdfast-masters
    static_configs: [{targets: ["m1:7070", "m2:7070", "m3:7070"]}]
  - job_name: holdfast-workers
    static_configs: [{targets: ["w1:7081", "w2:7081"]}]
rule_files: [deploy/prometheus/*.yml]
```

"""
_EVENTS = """
Every master counts all events: use one master's count, and do not alert on it.
"""
_BOTH = """
## Both

"""
_PROCESS: tuple[Row, ...] = (
    ("process_cpu_seconds_total", "counter", "", "time on a core"),
    ("process_resident_memory_bytes", "gauge", "", "resident memory, mapped files included"),
    ("process_virtual_memory_bytes", "gauge", "", "address space"),
    ("process_start_time_seconds", "gauge", "", "start, since 1970"),
    ("process_open_fds", "gauge", "", "open descriptors"),
    ("process_max_fds", "gauge", "", "limit of those"),
)
#: What is written of a limit that needs no more words: the row of what it limits has its name.
_LIMITS = frozenset({"limit", "as many as may be", "as much as they may", "as many as may wait"})


def documentation() -> str:
    """The whole page."""
    parts = (
        "## Masters\n",
        _table(_masters()),
        _EVENTS,
        "## Workers\n",
        _table(_workers()),
        _BOTH + _table(iter(_PROCESS)),
    )
    return _INTRODUCTION + "\n".join(parts) + "\n"


def _table(rows: Iterator[Row]) -> str:
    found = {row[0]: row for row in rows}
    limits = {name for name, row in found.items() if row[3] in _LIMITS and name.removesuffix("_max") in found}
    shown = [_row(row, f"{name}_max" in limits) for name, row in found.items() if name not in limits]
    return "\n".join(("|Metric|Mark|Labels|Meaning|", "|---|---|---|---|", *shown))


def _row(row: Row, limited: bool) -> str:
    name, kind, labels, text = row
    assert name.endswith("_total") == (kind == "counter"), "the page leaves out what the name says"
    assert "|" not in text
    names = f"`{name}`, `{name}_max`" if limited else f"`{name}`"
    return f"|{names}|{'' if kind in ('counter', 'gauge') else kind}|{labels}|{text}|"


def _masters() -> Iterator[Row]:
    calls, seconds = "holdfast_master_calls", "holdfast_master_call_seconds"
    yield f"{calls}_total", "counter", "method,status", masters.CALLS
    yield f"{calls}_created", "gauge", "method,status", "start of each series"
    yield seconds, "histogram", "method", masters.CALL_SECONDS
    yield f"{seconds}_created", "gauge", "method", "start of each series"
    for name, meaning in masters.GAUGES.items():
        kind = "grows" if name in masters.GROWING else "gauge"
        yield f"holdfast_master_{name}", kind, "", meaning
    for name, (label, meaning) in masters.LABELLED.items():
        yield f"holdfast_master_{name}", "gauge", label, meaning
    yield "holdfast_master_events_total", "counter", "event", masters.EVENTS


def _workers() -> Iterator[Row]:
    for name, meaning in workers.PROCESS.items():
        yield f"holdfast_worker_{name}", "gauge", "version" if name == "build_info" else "", meaning
    for name, meaning in workers.COUNTERS.items():
        yield f"holdfast_worker_{name}_total", "counter", "", meaning
    for name, meaning in workers.CAUSES.items():
        yield f"holdfast_worker_{name}_total", "counter", "status", meaning
    for name, meaning in workers.GAUGES.items():
        yield f"holdfast_worker_{name}", "gauge", "", meaning
    for name, meaning in workers.DIRECTORY.items():
        yield f"holdfast_worker_directory_{name}", "gauge", "path", meaning
