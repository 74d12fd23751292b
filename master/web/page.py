"""Writes the page: one document, no script, every number in the HTML itself. Pure but for its style sheet.

Rules: markup is made by markup.py alone, which escapes; styles are one sheet whose hash the Content-Security-Policy
names, so that nothing else may run or load. Parts of their own: workers_part.py, shuffles_part.py.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from importlib.resources import files

from holdfast.common.log_events import Level
from holdfast.common.sizes import counted, in_bytes
from holdfast.master.core.events import Event
from holdfast.master.web.html_parts import ago, bar, curve, pill, rate, tile
from holdfast.master.web.markup import Markup, join, shortened, tag, text, trusted
from holdfast.master.web.picture import MasterRow, Own, Picture, Problem, ShuffleCounts
from holdfast.master.web.shuffles_part import shuffles_part
from holdfast.master.web.view import EVENTS, REFRESH
from holdfast.master.web.workers_part import workers_part

_STYLE = files("holdfast.master.web").joinpath("page.css").read_text("utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: Nothing but the one style sheet and the icon, which is part of the document.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' "
    "rx='4' fill='%230f766e'/%3E%3Cpath d='M4 4h2v3h4V4h2v8h-2V9H6v3H4z' fill='white'/%3E%3C/svg%3E"
)


def write(picture: Picture) -> bytes:
    """Return the page."""
    own = picture.own
    title = f"{own.name} · {own.cluster} · Holdfast"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="refresh", content=str(REFRESH)) if picture.view.refresh else None,
        tag("title", title),
        tag("link", rel="icon", href=_ICON),
        tag("style", trusted(_STYLE)),
    )
    problems = _problems(picture)
    body = tag(
        "body",
        _header(picture, problems),
        tag(
            "main",
            _problem_box(problems),
            _tiles(picture) if picture.fleet is not None else _elsewhere(own),
            _masters(own),
            workers_part(picture),
            shuffles_part(picture),
            _events(picture),
        ),
        _footer(picture),
    )
    return ("<!doctype html>" + tag("html", head, body, lang="en")).encode()


def _header(picture: Picture, problems: list[Problem]) -> Markup:
    own, view = picture.own, picture.view
    grave = sum(each.grave for each in problems)
    if picture.fleet is None:
        health = pill(own.role, "plain" if own.leader else "bad")
    elif grave:
        health = pill(counted(grave, "problem"), "bad")
    else:
        health = pill(counted(len(problems), "warning"), "warn") if problems else pill("all well", "good")
    pause = view.link(refresh=not view.refresh)
    return tag(
        "header",
        tag("a", "Holdfast", href="/", class_="mark"),
        tag("span", shortened(own.cluster), class_="cluster"),
        health,
        tag(
            "span",
            f"{own.name} · {datetime.fromtimestamp(own.now_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC · ",
            tag("a", f"every {REFRESH} s" if view.refresh else "refresh is off", href=pause, title="on or off"),
            class_="when",
        ),
        tag(
            "nav",
            [tag("a", name, href=f"#{name.lower()}") for name in ("Masters", "Workers", "Shuffles", "Events")],
        )
        if picture.fleet is not None
        else None,
    )


def _problems(picture: Picture) -> list[Problem]:
    own, fleet = picture.own, picture.fleet
    found = []
    if not own.leader:
        found.append(Problem("there is no leader, as far as this one knows: nothing is registered or committed now"))
    found += [
        Problem(f"master {each.name} is not connected{_because(each)}") for each in own.masters if not each.connected
    ]
    found += [Problem(f"a fault is switched on: {each}", grave=False) for each in own.faults]
    if fleet is not None:
        found += fleet.problems
        if not fleet.racks:
            found.append(Problem("no worker has registered yet", grave=False))
        elif not fleet.alive:
            found.append(Problem("no worker is alive: applications fall back to Spark's own shuffle, or fail"))
    if picture.counts.lost:
        found.append(Problem(f"{counted(picture.counts.lost, 'shuffle')} committed without all data"))
    if picture.counts.under_replicated:
        found.append(Problem(_fewer(picture.counts), False))
    if picture.silent:
        silent = counted(picture.silent, "application")
        found.append(Problem(f"{silent} silent: every lease has expired; after the grace its data is deleted", False))
    return found


def _fewer(counts: ShuffleCounts) -> str:
    shuffles = counted(counts.under_replicated, "shuffle")
    told = f"{shuffles} committed with fewer copies than asked for: one more lost worker may take data with it"
    if not counts.awaited:
        return f"{told}. That stays so"
    if counts.awaited == counts.under_replicated:
        return f"{told}. Missing copies are sealed once their workers can"
    return f"{told}. Missing copies of {counts.awaited} of them are sealed once their workers can; the others stay so"


def _because(master: MasterRow) -> str:
    return f": {master.error}" if master.error else ""


def _problem_box(problems: list[Problem]) -> Markup | None:
    if not problems:
        return None
    rows = [tag("li", shortened_problem(each.text), class_=None if each.grave else "mild") for each in problems]
    return tag("section", tag("h2", "Look at this"), tag("ul", rows), class_="problems")


def shortened_problem(told: str) -> Markup:
    """A sentence that may carry an error of any length."""
    return text(told if len(told) <= 400 else told[:399] + "…")


def _elsewhere(own: Own) -> Markup:
    if own.leader_http:
        where = tag("a", f"{own.leader} at {own.leader_http}", href=f"//{own.leader_http}/")
        told = join("This master is a follower. The leader shows workers and shuffles: ", where, ".")
    else:
        told = text("This master knows of no leader. It asks for votes, or waits for another master that does.")
    counts = f"Here, as of entry {own.applied_index:,}: {counted(own.workers, 'worker')} ({own.workers_alive} alive), "
    counts += f"{counted(own.applications, 'application')}, {counted(own.shuffles, 'shuffle')}."
    return tag("section", tag("p", told), tag("p", counts, class_="muted"), class_="card note")


def _tiles(picture: Picture) -> Markup:
    fleet, counts = picture.fleet, picture.counts
    assert fleet is not None
    disks = {tier: room for tier, room in fleet.tiers.items() if room.total and tier != "DFS"}
    tiers = [
        tag("div", tag("span", tier, class_="key"), bar(room.used, room.total, f"{tier} used"), class_="tier")
        for tier, room in disks.items()
    ]
    used, total = sum(room.used for room in disks.values()), sum(room.total for room in disks.values())
    dfs = fleet.tiers.get("DFS")
    stored = f"of {in_bytes(total)}" + (f", {in_bytes(dfs.used)} on the DFS" if dfs is not None else "")
    missing = ", ".join(
        f"{number} {word}" for number, word in ((fleet.lost, "lost"), (fleet.draining, "draining")) if number
    )
    known = sum(rack.workers for rack in fleet.racks)
    return tag(
        "section",
        tile("Workers", f"{fleet.alive}", f"of {known}" + (f": {missing}" if missing else ""), fleet.lost > 0),
        tile(
            "Shuffles", f"{picture.own.shuffles}", f"{counts.open} open, {counts.committed} committed", counts.lost > 0
        ),
        tile("Applications", f"{picture.own.applications}", f"{in_bytes(counts.size)} committed"),
        tile("Stored", in_bytes(used), stored, False, tiers),
        tile("Pushed", rate(fleet.rates.push), "", False, curve([each.push for each in picture.pace.samples])),
        tile("Fetched", rate(fleet.rates.fetch), "", False, curve([each.fetch for each in picture.pace.samples])),
        class_="tiles",
    )


def _masters(own: Own) -> Markup:
    facts = (
        ("term", f"{own.term:,}"),
        ("committed", f"{own.commit_index:,}"),
        ("applied", f"{own.applied_index:,}"),
        ("snapshot", f"{own.snapshot_index:,}"),
        ("log", f"{own.log_entries:,} entries, {in_bytes(own.log_bytes)}"),
        ("longest turn", f"{own.longest_turn * 1000:.0f} ms"),
        ("slow turns", f"{own.slow_turns:,}"),
    )
    return tag(
        "section",
        tag("h2", "Masters"),
        tag(
            "div",
            tag("div", [_master(each) for each in own.masters], class_="masters"),
            tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]),
            class_="card",
        ),
        id="masters",
    )


def _master(master: MasterRow) -> Markup:
    if not master.connected:
        state = pill("away", "bad")
    else:
        state = pill("leader", "good") if master.leads else pill("follower", "plain")
    lag = None
    if master.own:
        lag = "this one"
    elif master.connected and master.lag is not None:
        lag = "up to date" if not master.lag else f"{counted(master.lag, 'entry').replace('entrys', 'entries')} behind"
    name = master.name if master.own else tag("a", master.name, href=f"//{master.http}/")
    return tag("div", tag("b", name), state, tag("span", lag, class_="muted"), class_="master")


def _events(picture: Picture) -> Markup:
    rows = [_event(each, picture.own.now_ms) for each in picture.events]
    more = None
    if len(picture.events) >= picture.view.events:
        further = max(picture.view.events, EVENTS) * 4
        more = tag("p", tag("a", "earlier ones", href=picture.view.link("events", events=further)), class_="pages")
    empty = tag("p", "Nothing has happened since this master started.", class_="muted")
    return tag(
        "section",
        tag("h2", "Events"),
        tag("div", tag("ol", rows, class_="events") if rows else empty, more, class_="card"),
        id="events",
    )


def _event(event: Event, now_ms: int) -> Markup:
    times = f" ({event.times} times)" if event.times > 1 else ""
    moment = datetime.fromtimestamp(event.time_ms / 1000, UTC)
    words = {Level.ERROR: "bad", Level.WARNING: "warn", Level.INFO: "plain"}
    return tag(
        "li",
        tag(
            "time", ago(now_ms - event.time_ms), datetime=moment.isoformat(timespec="seconds"), title=f"{moment:%c} UTC"
        ),
        tag("span", event.level.word, class_=f"level {words[event.level]}"),
        tag("span", shortened_problem(f"{event.happened.event} {event.happened.text}"), times, class_="what"),
    )


def _footer(picture: Picture) -> Markup:
    return tag(
        "footer",
        f"Holdfast {picture.own.version} · ",
        tag("a", "metrics", href="/metrics"),
        " · times are those of the masters · a page for people: programs ask ",
        tag("code", "holdfast status --json"),
    )
