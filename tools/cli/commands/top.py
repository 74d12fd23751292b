"""`holdfast top`: workers and shuffles with their pace, as a live screen, once, or as JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import HoldfastError
from holdfast.common.ids import shuffle_name
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes
from holdfast.common.worker_states import LOST
from holdfast.tools.cli.asking import answer, with_masters
from holdfast.tools.cli.filters import chosen, hosts_option, names_argument, racks_option, states_option
from holdfast.tools.cli.hosts import hosts_of, hosts_table, several
from holdfast.tools.cli.output import (
    FiniteRange,
    Fitted,
    console,
    escape,
    in_seconds,
    json_option,
    masters_option,
    show,
)
from holdfast.tools.cli.records import shuffle_record, worker_record

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from holdfast.common.net.control import ControlClient

#: The workers that were asked for, of all.
Choose = Callable[[Sequence[pb.WorkerInfo]], list[pb.WorkerInfo]]
_BAR = 12
_STYLES = {
    "alive": "green",
    "draining": "yellow",
    "lost": "bold red",
    "gone": "dim",
    "committed": "green",
    "data lost": "bold red",
}


@click.command()
@names_argument
@hosts_option
@racks_option
@states_option
@click.option("--once", is_flag=True, help="Print it once; the default where the output is no terminal.")
@click.option("--interval", default=2.0, show_default=True, type=FiniteRange(0.2), help="Seconds between updates.")
@click.option(
    "--rows", default=20, show_default=True, type=click.IntRange(1, 1_000), help="Workers and shuffles shown."
)
@masters_option
@json_option
def top(
    names: tuple[str, ...],
    hosts: tuple[str, ...],
    racks: tuple[str, ...],
    states: tuple[str, ...],
    once: bool,
    interval: float,
    rows: int,
    masters: str,
    as_json: bool,
) -> int:
    """Show workers and shuffles with what is pushed and fetched a second, the busiest first, until Ctrl-C. Workers are
    all, those of hosts, or those named; where hosts have several they stand by host.

    Throughput of workers is that between two heartbeats. Exit 1 with --once or --json if a worker is lost or
    has a directory or a DFS that it cannot use.
    """
    screen = console()
    choose = partial(chosen, texts=names, hosts=hosts, states=states, racks=racks)
    if once or as_json or not screen.is_terminal:
        document = with_masters(masters, lambda client: _look(client, choose, rows))
        show(document, as_json, lambda target: target.print(*drawn(document), sep="\n"))
        return 0 if document["healthy"] else 1
    with suppress(KeyboardInterrupt):
        with_masters(masters, lambda client: _watch(client, screen, interval, choose, rows))
    return 0


async def _look(client: ControlClient, choose: Choose, rows: int) -> dict[str, Any]:
    """Ask the leader once."""
    workers = await answer(client, "Admin/ListWorkers", pb.ListWorkersRequest())
    shuffles = await answer(client, "Admin/ListShuffles", pb.ListShufflesRequest(limit=10_000))
    return document_of(choose(workers.workers), list(shuffles.shuffles), shuffles.total, rows)


async def _watch(client: ControlClient, screen: Console, interval: float, choose: Choose, rows: int) -> None:
    """Redraw repeatedly; masters that do not answer are shown, and asked again."""
    from rich.console import Group
    from rich.live import Live

    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            shown: list[RenderableType]
            try:
                shown = drawn(await _look(client, choose, rows))
            except HoldfastError as error:
                shown = [escape(f"no answer: {error}")]
            live.update(Group(*shown), refresh=True)
            await asyncio.sleep(interval)


def document_of(
    workers: Sequence[pb.WorkerInfo], shuffles: Sequence[pb.ShuffleInfo], total: int, rows: int
) -> dict[str, Any]:
    """Put together what is shown; `rows` at most of each, the busiest hosts and workers and the newest shuffles. Where
    hosts have several workers these stand together, the busiest first."""
    found = [worker_record(each) for each in workers]
    found.sort(key=lambda each: (-each["push_rate"] - each["fetch_rate"], each["state"] != LOST, each["name"]))
    newest = sorted(shuffles, key=lambda each: (each.state != "open", -each.created_ms))
    states = [each["state"] for each in found]
    hosts = hosts_of(workers)
    hosts.sort(key=lambda each: (-each["push_rate"] - each["fetch_rate"], not each["lost"], each["host"]))
    if several(hosts):
        order = {each["host"]: number for number, each in enumerate(hosts)}
        found.sort(key=lambda each: order.get(each["host"], len(order)))
    return {
        "workers_total": len(found),
        **{state: states.count(state) for state in ("alive", "draining", "lost")},
        **{key: sum(each[key] for each in found) for key in ("push_rate", "fetch_rate", "used_bytes", "free_bytes")},
        "shuffles_total": total,
        "hosts_total": len(hosts),
        "healthy": not any(each["state"] == LOST or each["problems"] for each in found),
        "hosts": hosts[:rows],
        "workers": found[:rows],
        "shuffles": [shuffle_record(each) for each in newest[:rows]],
    }


def drawn(document: dict[str, Any]) -> list[RenderableType]:
    """What the screen shows: a line of sums, the workers, the shuffles."""
    on = f" on {counted(document['hosts_total'], 'host')}" if several(document["hosts"]) else ""
    lost = f", [bold red]{document['lost']} lost[/]" if document["lost"] else ""
    drain = f", [yellow]{document['draining']} draining[/]" if document["draining"] else ""
    head = (
        f"[bold]{counted(document['workers_total'], 'worker')}[/]{on}{lost}{drain}   "
        f"pushed [bold]{in_bytes(document['push_rate'])}/s[/]   "
        f"fetched [bold]{in_bytes(document['fetch_rate'])}/s[/]   "
        f"stored [bold]{in_bytes(document['used_bytes'])}[/], {in_bytes(document['free_bytes'])} free   "
        f"[bold]{counted(document['shuffles_total'], 'shuffle')}[/]"
    )
    by_host = several(document["hosts"])
    hosts = [hosts_table(document["hosts"])] if by_host else []
    return [head, *hosts, _workers_table(document["workers"], by_host), _shuffles_table(document["shuffles"])]


def _workers_table(found: list[dict[str, Any]], by_host: bool) -> Fitted:
    columns = (
        *(("host",) if by_host else ()),
        *("worker", "?place", "state", "#pushed/s", "#fetched/s"),
        *("?used", "#stored", "#free", "?#files", "?#memory", "?#seen"),
    )
    rows = [
        (
            *((one["host"],) if by_host else ()),
            *(one["name"], one["place"], _styled(one["state"])),
            *(in_bytes(one["push_rate"]), in_bytes(one["fetch_rate"])),
            _bar(one["used_bytes"], one["used_bytes"] + one["free_bytes"], bool(one["problems"])),
            *(in_bytes(one[key]) for key in ("used_bytes", "free_bytes")),
            one["files"],
            in_bytes(one["memory_bytes"]),
            f"{in_seconds(one['last_seen_ms'] / 1000)} ago",
        )
        for one in found
    ]
    return Fitted(columns, rows)


def _shuffles_table(found: list[dict[str, Any]]) -> Fitted:
    columns = ("shuffle", "?kind", "state", "?#maps", "?#partitions", "?#epochs", "#bytes", "#age", "?why")
    now = time.time()
    rows = []
    for one in found:
        far = f" {one['sealed']} of {one['sealing']}" if one["sealing"] else ""
        moved = f" ({one['moves']} moved)" if one["moves"] else ""
        state = "data lost" if one["lost"] else "sealing" if one["sealing"] else one["state"]
        shown = one | {
            "shuffle": shuffle_name(one["application"], one["shuffle"], one["generation"]),
            "state": _styled(state).append(far),
            "epochs": f"{one['epochs']}{moved}" if one["epochs"] else "-",
            "bytes": in_bytes(one["bytes"]) if one["state"] == "committed" else "-",
            "age": in_seconds(max(now - one["created_ms"] / 1000, 0)),
        }
        rows.append([shown[key.lstrip("?#")] for key in columns])
    return Fitted(columns, rows)


def _styled(state: str) -> Text:
    from rich.text import Text

    return Text(state, _STYLES.get(state, ""))


def _bar(part: int, whole: int, ill: bool) -> Text:
    from rich.text import Text

    share = part / whole if whole else 0.0
    full = round(share * _BAR)
    style = "bold red" if ill or share > 0.93 else "yellow" if share > 0.8 else "cyan"
    return Text("█" * full, style).append("░" * (_BAR - full), "dim")
