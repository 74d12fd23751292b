"""Metrics as documented: real servers against docs/operate/metrics.md, both ways; alerts, runbooks and the dashboard
by that list; and their logs as JSON."""

import json
import re
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.log_events import LogEvent
from tests.support.reduce_client import fill, read
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ALERTS = sorted((ROOT / "deploy/prometheus").glob("*.yml"))
#: A label that is not here may have any number of values: each value is a series that Prometheus keeps. Of workers only
#: so many that are lost have one.
BOUNDED = {"adherence", "method", "status", "le", "event", "tier", "peer", "path", "reason", "version", "worker"}
#: What nobody may find in metrics: they would be labels that clients choose.
APP, USER = "an-app-of-this-test", "a-user-of-this-test"
SECRET = "a secret of this test, long enough"
_ROW = re.compile(r"^\|(`\w+`(?:, `\w+`)?)\|(histogram|grows)?\|([\w,]*)\|\S", re.MULTILINE)
_SUFFIXES = ("_bucket", "_count", "_sum")


class Family(NamedTuple):
    """A metric: its type, and the names of its labels."""

    kind: str
    labels: frozenset[str]


def documented() -> dict[str, Family]:
    """What docs/operate/metrics.md lists."""
    rows = _ROW.findall((ROOT / "docs/operate/metrics.md").read_text("utf-8"))
    return {
        name: Family(_kind(name, mark), frozenset(labels.split(",")) - {""})
        for names, mark, labels in rows
        for name in re.findall(r"\w+", names)
    }


def _kind(name: str, mark: str) -> str:
    if mark == "histogram":
        return mark
    return "counter" if name.endswith("_total") else "gauge"


def exposed(text: str) -> dict[str, Family]:
    """What a server tells."""
    kinds = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            for suffix in _SUFFIXES:
                if kinds.get(name.removesuffix(suffix)) == "histogram":
                    name = name.removesuffix(suffix)
            labels[name] |= set(re.findall(r'(\w+)="', line)) - {"le"}
    return {name: Family(kind, frozenset(labels[name])) for name, kind in kinds.items()}


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as page:
        return str(page.read().decode())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and a worker with a DFS tier, logging JSON, that served a shuffle and refused something."""
    directory = tmp_path_factory.mktemp("metrics")
    (directory / "dfs").mkdir()
    (directory / "secret").write_text(SECRET)
    settings: dict[str, dict[str, object]] = {
        "log": {"format": "json"},
        "dfs": {"url": str(directory / "dfs"), "clean_every": "200ms"},
        "cluster": {"secret_file": str(directory / "secret")},
    }
    with local_cluster(masters=3, workers=1, dir=directory / "c", settings=settings) as cluster:
        with Session(cluster.endpoints, app=APP, user=USER) as session:
            shuffle, wanted = fill(session)
            assert read(shuffle) == wanted
        leader = cluster.leader()
        wait_until(lambda: 'tier="SSD"' in scrape(leader.address), "a heartbeat")
        yield cluster


def test_metrics_are_those_that_are_documented(served: LocalCluster) -> None:
    """Every metric of real masters and workers is listed with its type and labels, and none is only listed."""
    found: dict[str, Family] = {}
    for server in served.masters:
        found |= exposed(scrape(server.address)) if server is not served.leader() else {}
    found |= exposed(scrape(served.leader().address)) | exposed(scrape(served.workers[0].http))
    listed = documented()
    assert len(listed) > 150
    assert {name: family.kind for name, family in found.items()} == {name: each.kind for name, each in listed.items()}
    wrong = {
        name: (family.labels, listed[name].labels)
        for name, family in found.items()
        if not family.labels <= listed[name].labels
    }
    assert wrong == {}
    assert {label for family in listed.values() for label in family.labels} <= BOUNDED


def test_no_series_is_named_by_a_client(served: LocalCluster) -> None:
    """Neither application nor user nor instance is anywhere in the metrics of a server that knows them."""
    for address in (served.leader().address, served.workers[0].http):
        text = scrape(address)
        assert APP not in text
        assert USER not in text
        assert not re.search(r'="[0-9a-f]{32}"', text)


def test_refusals_have_causes(served: LocalCluster) -> None:
    """Requests that a worker refuses are counted by the name of their status, and add up to all refusals."""
    text = scrape(served.workers[0].http)
    by_cause = sum(
        float(each) for each in re.findall(r"^holdfast_worker_requests_refused_total\{.*\} (.*)$", text, re.MULTILINE)
    )
    (total,) = re.findall(r"^holdfast_worker_refusals_total (.*)$", text, re.MULTILINE)
    assert by_cause == float(total)


def series_of(expression: str) -> set[str]:
    """The metrics that an expression of Prometheus names; of a histogram its name."""
    names = set(re.findall(r"\b(?:holdfast|process)_\w+", expression))
    return {re.sub(r"(_seconds)_(bucket|count|sum)$", r"\1", name) for name in names}


def alerts() -> dict[str, tuple[str, str]]:
    """Every alert's expression and severity."""
    found = {}
    for path in ALERTS:
        for rule in (each for group in yaml.safe_load(path.read_text("utf-8"))["groups"] for each in group["rules"]):
            name = rule["alert"]
            assert name not in found, f"{name} is there twice"
            assert set(rule["annotations"]) >= {"summary", "description"}, name
            found[name] = rule["expr"], rule["labels"]["severity"]
    return found


def test_every_alert_is_of_metrics_that_exist() -> None:
    """An alert on a name that nobody exposes would be silent for ever."""
    known, found = set(documented()), alerts()
    assert len(found) > 20
    assert {
        "HoldfastNoLeader",
        "HoldfastWorkerLost",
        "HoldfastDirectoryUnhealthy",
        "HoldfastNoRoom",
        "HoldfastLostData",
    } <= set(found)
    for name, (expression, severity) in found.items():
        assert series_of(expression), name
        assert series_of(expression) <= known, name
        assert severity in ("critical", "warning", "info"), name
        promql_parser.parse(expression)


def test_every_alert_has_a_runbook_and_every_runbook_its_alert() -> None:
    """docs/operate/runbooks.md says of each what it means, where to look and what to do, and of nothing else."""
    text = (ROOT / "docs/operate/runbooks.md").read_text("utf-8")
    books = {part.split("\n", 1)[0].strip(): part for part in text.split("\n## ")[1:]}
    assert set(books) == set(alerts())
    for name, book in books.items():
        assert all(word in book for word in ("**Means**", "**Look**", "**Do**")), name


def test_the_dashboard_is_importable_and_of_metrics_that_exist() -> None:
    """Panels have ids of their own, places that do not overlap, and the one data source that the variable names."""
    board: dict[str, Any] = json.loads((ROOT / "deploy/grafana/holdfast.json").read_text("utf-8"))
    panels = board["panels"]
    assert board["id"] is None
    assert [each["type"] for each in board["templating"]["list"] if each["name"] == "datasource"] == ["datasource"]
    assert len({each["id"] for each in panels}) == len(panels) > 20
    cells = [
        (x, y)
        for at in (each["gridPos"] for each in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    known = set(documented())
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["title"]
        targets = panel["targets"]
        assert len({each["refId"] for each in targets}) == len(targets) >= 1
        for one in (panel, *targets):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in targets:
            assert series_of(target["expr"]), target
            assert series_of(target["expr"]) <= known, target
            promql_parser.parse(target["expr"].replace("$__rate_interval", "5m"))


def test_logs_are_one_json_object_a_line_and_tell_no_secret(served: LocalCluster) -> None:
    """With [log] format = "json" every line of every server is an object with time, level, event and message."""
    lines, names = 0, {event.dotted for event in LogEvent}
    for server in served.servers:
        text = server.log.read_text("utf-8")
        assert SECRET not in text
        for line in text.splitlines():
            entry = json.loads(line)
            if "ready" in entry:
                continue  # the readiness line of standard output, which is JSON in any format
            assert datetime.fromisoformat(entry["time"]).tzinfo is not None
            assert entry["level"] in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
            assert entry["event"] in names
            assert entry["message"]
            lines += 1
    assert lines >= 2  # who leads, and that the worker registered


def test_a_lost_worker_has_a_series(served: LocalCluster) -> None:
    """By its id, so that an alert can tell workers apart; it ends when the worker is back."""
    leader, worker = served.leader(), served.workers[0]
    series = 'holdfast_master_worker_lost{worker="1"} 1.0'
    assert series not in scrape(leader.address)
    worker.kill()
    wait_until(lambda: series in scrape(leader.address), "the worker is lost", 120)
    worker.start()
    wait_until(lambda: series not in scrape(leader.address), "the worker is back", 120)
