"""Makes docs/metrics.md from the help texts of masters and workers. Called by tests/write_docs.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.master.observe import metric_help as masters
from holdfast.worker.server.observe import metric_help as workers

#: (name, type, labels, meaning)
Row = tuple[str, str, str, str]
_INTRODUCTION = """# Metrics

Made by `python -m tests.write_docs` from the help texts in `master/observe/metric_help.py` and
`worker/server/observe/metric_help.py`; change them there.

`GET /metrics` on the HTTP port of every master and worker, in Prometheus' text format. A test scrapes real servers and
compares: every metric that they expose is in these tables with this type and these labels, and the other way round.

No label takes its values from clients. Labels are: `method` and `status` (fixed sets of [protocol.md](protocol.md)),
`event` (a name of [log_events.md](log_events.md)), `tier` (`MEMORY`, `SSD`, `HDD`, `DFS`, `other`), `peer` (masters of
the configuration), `path` (directories of the configuration), `version`, `le`. There is none for a shuffle, an
application or a user: [sight.md](sight.md) says where to look for one.

*gauge, grows*: begins at 0 with the process and only grows, so `increase()` and `rate()` are what to ask. What only
the leader knows is 0 or absent on followers: take the `max` or `sum` over masters. Alerts: [runbooks.md](runbooks.md)
and deploy/prometheus; a dashboard: deploy/grafana/holdfast.json.

```yaml
scrape_configs:
  - job_name: holdfast-masters
    static_configs: [{targets: ["m1:7070", "m2:7070", "m3:7070"]}]
  - job_name: holdfast-workers
    static_configs: [{targets: ["w1:7081", "w2:7081"]}]
rule_files: [deploy/prometheus/*.yml]
```

"""
_TABLE = "| Name | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|"
_EVENTS = """
Every master counts the events of the log, and counts them again after a restart: take one master's, and no alert on it.
"""
_BOTH = """
## Both

| Name | Type | Unit | Labels | Meaning |
|---|---|---|---|---|
| `process_cpu_seconds_total` | counter | seconds |  | time on a core |
| `process_resident_memory_bytes` | gauge | bytes |  | resident memory, mapped files included |
| `process_virtual_memory_bytes` | gauge | bytes |  | address space |
| `process_start_time_seconds` | gauge | seconds |  | when it started, since 1970 |
| `process_open_fds` | gauge |  |  | descriptors open |
| `process_max_fds` | gauge |  |  | as many as may be |
"""
#: What a name, and a meaning, say of the unit; the first that fits.
_UNITS = (
    (r"_per_second$", "bytes/s"),
    (r"_bytes(_max|_peak|_(in|out|written))?(_total)?$|_bytes_(in|out)_total$|_bytes_written_total$", "bytes"),
    (r"_microseconds(_max|_total)|_us$", "µs"),
    (r"_seconds(_max)?$|_created$", "seconds"),
    (r"_index$", "index"),
)
_FLAG = re.compile(r"(^|: )1 (on|while|once) ")


def documentation() -> str:
    """The whole page."""
    parts = ("## Masters\n", _table(_masters()), _EVENTS, "## Workers\n", _table(_workers()), _BOTH)
    return _INTRODUCTION + "\n".join(parts)


def _table(rows: Iterator[Row]) -> str:
    lines = (f"| `{name}` | {kind} | {_unit(name, text)} | {labels} | {text} |" for name, kind, labels, text in rows)
    return "\n".join([_TABLE, *lines])


def _unit(name: str, meaning: str) -> str:
    if _FLAG.search(meaning):
        return "0 or 1"
    return next((unit for pattern, unit in _UNITS if re.search(pattern, name)), "")


def _masters() -> Iterator[Row]:
    calls, seconds = "holdfast_master_calls", "holdfast_master_call_seconds"
    yield f"{calls}_total", "counter", "method, status", masters.CALLS
    yield f"{calls}_created", "gauge", "method, status", "when each of these series began (added by the client library)"
    yield seconds, "histogram", "method", masters.CALL_SECONDS
    yield f"{seconds}_created", "gauge", "method", "when each of these series began"
    for name, meaning in masters.GAUGES.items():
        kind = "gauge, grows" if name in masters.GROWING else "gauge"
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
