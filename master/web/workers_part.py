"""The page's part on workers: racks with their tiers as bars, and workers with their directories. Pure."""

from __future__ import annotations

from itertools import groupby

from holdfast.common.sizes import counted, in_bytes
from holdfast.master.core.rates import Rates
from holdfast.master.web.html_parts import ago, bar, pages, pill, rate
from holdfast.master.web.markup import Markup, join, shortened, tag
from holdfast.master.web.picture import DiskRow, FleetPicture, Picture, RackRow, Room, WorkerRow
from holdfast.master.web.summary import in_order
from holdfast.master.web.view import RACKS, View

_MOODS = {"alive": "good", "draining": "warn", "lost": "bad", "gone": "plain"}


def workers_part(picture: Picture) -> Markup | None:
    """The section; None on a master that does not lead."""
    fleet, view = picture.fleet, picture.view
    if fleet is None:
        return None
    racks = {rack.name: rack for rack in fleet.racks}
    groups = [_rack_group(racks[name], tuple(rows), view) for name, rows in groupby(fleet.rows, lambda row: row.rack)]
    chosen = None
    if view.rack:
        everything = tag("a", "all racks", href=view.link("workers", rack="", workers=1))
        chosen = tag("p", "Only rack ", tag("b", shortened(view.rack)), " · ", everything, class_="pages")
    links = pages(fleet.cut, "workers", lambda page: view.link("workers", workers=page))
    empty = None
    if not fleet.rows and view.rack:
        empty = tag("div", tag("p", "No worker is there."), class_="card muted")
    elif not fleet.rows:
        empty = tag("p", "No worker has registered. Start one: ", tag("code", "holdfast worker --config FILE"), ".")
        empty = tag("div", empty, class_="card muted")
    return tag(
        "section",
        tag("h2", "Workers"),
        _overview(fleet, view) if fleet.cut.pages > 1 and len(fleet.racks) > 1 and not view.rack else None,
        chosen,
        groups,
        empty,
        links,
        id="workers",
    )


def _overview(fleet: FleetPicture, view: View) -> Markup:
    """All racks in a line each, where the workers do not fit one page."""
    cards = [_rack_card(rack, view) for rack in fleet.racks[:RACKS]]
    more = None
    if len(fleet.racks) > RACKS:
        more = tag("p", f"and {len(fleet.racks) - RACKS} more racks, below with their workers", class_="pages")
    return join(tag("div", cards, class_="racks"), more)


def _rack_card(rack: RackRow, view: View) -> Markup:
    name = tag("a", shortened(rack.name), href=view.link("workers", rack=rack.name, workers=1))
    return tag("div", tag("h3", name, _health(rack)), _tiers(rack.tiers), class_="rack")


def _health(rack: RackRow) -> Markup:
    parts = [pill(f"{rack.alive} of {rack.workers} alive", "good" if rack.alive == rack.workers else "plain")]
    parts += [
        pill(f"{number} {word}", mood)
        for number, word, mood in (
            (rack.lost, "lost", "bad"),
            (rack.ill, "with a problem", "bad"),
            (rack.draining, "draining", "warn"),
        )
        if number
    ]
    return tag("span", parts, class_="pills")


def _tiers(tiers: dict[str, Room]) -> list[Markup]:
    return [
        tag("div", tag("span", tier, class_="key"), _room(tier, room), class_="tier")
        for tier, room in in_order(tiers).items()
    ]


def _room(tier: str, room: Room) -> Markup:
    if not room.total or tier == "DFS":
        return tag("span", f"{in_bytes(room.used)} stored", class_="of")
    return bar(room.used, room.total, f"{tier} used")


def _rack_group(rack: RackRow, rows: tuple[WorkerRow, ...], view: View) -> Markup:
    """The workers of one rack that are on this page."""
    name = tag("a", shortened(rack.name), href=view.link("workers", rack=rack.name, workers=1))
    sums = f"{rate(rack.rates.push)} pushed, {rate(rack.rates.fetch)} fetched"
    return tag(
        "div",
        tag("h3", name, _health(rack), tag("span", sums, class_="muted sums")),
        tag("div", [_worker(row) for row in rows], class_="workers"),
        class_="card group",
    )


def _worker(row: WorkerRow) -> Markup:
    seen = ago(row.seen_ms) if row.seen_ms >= 0 else "not heard by this leader yet"
    facts = [f"seen {seen}", f"start {row.start}", counted(row.files, "file"), f"memory {in_bytes(row.memory)}"]
    return tag(
        "article",
        tag("h4", shortened(row.name), pill(row.state, _MOODS[row.state]), _rates(row.rates)),
        tag("p", shortened(row.host), " · ", shortened(row.address), class_="muted"),
        tag("p", [join(tag("span", fact, class_="fact"), " ") for fact in facts], class_="muted"),
        tag("p", row.drain, class_="told") if row.drain else None,
        [_disk(disk) for disk in row.disks],
        class_=f"worker {row.state}",
    )


def _rates(rates: Rates) -> Markup | None:
    """What it does now; nothing where it does nothing."""
    told = [f"{arrow} {rate(pace)}" for arrow, pace in (("↓", rates.push), ("↑", rates.fetch)) if pace]
    return tag("span", " ".join(told), class_="rates", title="pushed to it, fetched from it") if told else None


def _disk(disk: DiskRow) -> Markup:
    if not disk.known:
        room = tag("span", "not told yet", class_="of")
    elif disk.tier == "DFS":
        room = tag("span", f"{in_bytes(disk.used)} stored", class_="of")
    else:
        mood = "bad" if disk.problem else ""
        room = bar(disk.used, disk.used + disk.free, f"{disk.path} used", mood)
    told = disk.problem or disk.full
    state = pill(disk.state or "failing", "bad") if disk.problem else pill("full", "warn") if disk.full else None
    return tag(
        "div",
        tag("span", tag("b", disk.tier), " ", shortened(disk.path), state, class_="key"),
        room,
        tag("p", told, class_="told") if told else None,
        class_="disk",
    )
