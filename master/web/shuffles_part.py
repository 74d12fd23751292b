"""The page's part on shuffles: what each is, how far it is, and why it is still here. Pure."""

from __future__ import annotations

from holdfast.common.sizes import counted, fewer_copies, in_bytes
from holdfast.master.core.retention import Retention
from holdfast.master.web.html_parts import ago, line, pages, pill
from holdfast.master.web.markup import Markup, join, shortened, tag
from holdfast.master.web.picture import Picture, ShuffleRow
from holdfast.master.web.view import View

_COLUMNS = ("Shuffle", "State", "Maps", "Partitions", "Epochs", "Bytes", "Age", "Retention it is still here")


def shuffles_part(picture: Picture) -> Markup | None:
    """The section; None on a master that does not lead."""
    if picture.fleet is None:
        return None
    view, now = picture.view, picture.own.now_ms
    chosen = None
    if view.application:
        everything = tag("a", "all applications", href=view.link("shuffles", application="", shuffles=1))
        chosen = tag("p", "Only ", tag("b", shortened(picture.application)), " · ", everything, class_="pages")
    rows = [_row(row, view, now) for row in picture.shuffles]
    table = tag(
        "table",
        tag("thead", tag("tr", [tag("th", name, scope="col") for name in _COLUMNS])),
        tag("tbody", rows),
    )
    empty = tag("p", "No shuffle is registered.", class_="muted")
    links = pages(picture.shuffle_cut, "shuffles", lambda page: view.link("shuffles", shuffles=page))
    return tag(
        "section",
        tag("h2", "Shuffles"),
        chosen,
        tag("div", table if rows else empty, class_="card"),
        links,
        id="shuffles",
    )


def _row(row: ShuffleRow, view: View, now_ms: int) -> Markup:
    age = ago(now_ms - row.created_ms)
    cells = (
        join(_name(row, view), tag("span", _facts(row), class_="muted below")),
        _state(row),
        f"{row.maps:,}" if row.maps else "not said yet",
        f"{row.partitions:,}",
        _epochs(row),
        _size(row),
        age,
        _why(row.why),
    )
    return tag("tr", [tag("td", cell, data_label=name) for name, cell in zip(_COLUMNS, cells, strict=True)])


def _name(row: ShuffleRow, view: View) -> Markup:
    application = tag(
        "a",
        shortened(row.application),
        href=view.link("shuffles", application=row.instance, shuffles=1),
        title=f"instance {row.instance}",
    )
    generation = f" generation {row.generation}" if row.generation else ""
    return join(application, tag("b", f" / {row.shuffle}{generation}"))


def _facts(row: ShuffleRow) -> Markup:
    copies = counted(row.copies, "copy").replace("copys", "copies")
    fewer = f" of {row.copies_wanted}" if row.copies < row.copies_wanted else ""
    user = join(" of ", shortened(row.user)) if row.user else ""
    return join(f"{row.kind}, {copies}{fewer}", user)


def _state(row: ShuffleRow) -> Markup:
    if row.committed_ms and row.lost:
        lost = counted(row.lost, "epoch")
        return join(pill("data lost", "bad"), line(1.0, "committed", "bad"), tag("span", f"{lost} lost", class_="of"))
    if row.committed_ms and row.under_replicated:
        fewer = fewer_copies(row.under_replicated, row.awaited)
        return join(pill("committed", "warn"), line(1.0, "committed", "warn"), tag("span", fewer, class_="of"))
    if row.committed_ms:
        return join(pill("committed", "good"), line(1.0, "committed", "good"))
    if row.sealing is not None:
        sealed, asked = row.sealing
        told = f"{sealed:,} of {asked:,} copies sealed"
        waits = tag("span", "waits for ", ", ".join(row.waits_for), class_="of") if row.waits_for else None
        return join(
            pill("sealing", "warn"),
            line(sealed / asked if asked else 0.0, told, "warn"),
            tag("span", told, class_="of"),
            waits,
        )
    return join(pill("open", "plain"), line(0.0, "open: maps write"))


def _epochs(row: ShuffleRow) -> str:
    if not row.epochs:
        return "–"
    return f"{row.epochs:,}" + (f" ({row.moves:,} moved)" if row.moves else "")


def _size(row: ShuffleRow) -> str:
    if row.committed_ms:
        return in_bytes(row.size)
    return f"{in_bytes(row.held)} so far" if row.held else "–"


def _why(why: Retention) -> Markup:
    return tag(
        "details",
        tag("summary", why.sentence),
        tag("ul", [tag("li", lease) for lease in why.leases]),
        tag("p", why.deletes, "; an operator can, with ", tag("code", "holdfast forget"), "."),
    )
