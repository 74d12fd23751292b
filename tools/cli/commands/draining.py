"""`holdfast drain`, `undrain`, `remove`: workers that take nothing new, what is missing until they may be restarted or
removed, and workers that were removed without it."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import click

from holdfast.common.errors import ConfigError, HoldfastError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.visible import visible
from holdfast.common.worker_states import AWAY, GONE
from holdfast.tools.cli.asking import answer, ask, with_masters
from holdfast.tools.cli.hosts import leaving_text
from holdfast.tools.cli.output import Document, Fitted, console, escape, json_option, masters_option, show
from holdfast.tools.cli.records import worker_record

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.common.net.control import ControlClient

#: Between two checks: workers report to the masters every two seconds, and changes at once.
_LOOK_SECONDS = 0.5
#: Draws how far the workers are.
Step = Callable[[Sequence[pb.WorkerInfo]], None]


class Purpose(StrEnum):
    """What the workers are drained for."""

    RESTART = "restart"
    REMOVAL = "removal"


_names = click.argument("workers", nargs=-1, required=True, metavar="WORKER|HOST…")


@click.command()
@_names
@click.option(
    "--for",
    "purpose",
    type=click.Choice([each.value for each in Purpose]),
    help="restart: wait until they have no open data. removal: wait until no application needs their "
    "data, which may last as long as the applications. Default: restart, with --by removal.",
)
@click.option(
    "--by",
    metavar="TIME",
    help="Their hosts go away then: a time of day (18:30, the next one) or a span (90m, 2h). Exit 1 where that is not "
    "reached.",
)
@click.option("--no-wait", is_flag=True, help="Start the drain, print its state, and return.")
@masters_option
@json_option
def drain(
    workers: tuple[str, ...], purpose: str | None, by: str | None, no_wait: bool, masters: str, as_json: bool
) -> int:
    """Have workers (names or numbers), or all workers of hosts, take nothing new, and wait until they may be restarted,
    or removed. With --by their hosts go away at a time, which `status` and `workers` show with whether it is reached.

    Open data moves to other workers; they keep serving what they have. A name that a host and a worker share means the
    host with all its workers; the worker alone is named by its number. Ctrl-C ends the wait, not the drain. Exit 0
    when all may be stopped, or with --no-wait at once; 1 if a worker is lost, was restarted or its drain was cancelled
    meanwhile, or the time of --by is over. Masters that do not answer meanwhile are asked again.
    """
    within_ms = 0 if by is None else int(seconds_until(by, datetime.now().astimezone()) * 1000)
    wanted = Purpose(purpose) if purpose else Purpose.REMOVAL if within_ms else Purpose.RESTART
    request = pb.DrainWorkersRequest(workers=workers, within_ms=within_ms)
    with _screen() as step:
        found = with_masters(masters, lambda client: _drain(client, request, no_wait, wanted, step))
    document = {
        "workers": [worker_record(each) for each in found],
        "for": wanted.value,
        "safe": all(_is_safe(each, wanted) for each in found),
    }
    show(document, as_json, lambda screen: _draw(document, screen))
    return 0


@click.command()
@_names
@masters_option
@json_option
def undrain(workers: tuple[str, ...], masters: str, as_json: bool) -> None:
    """Have draining workers (names or numbers), or all workers of hosts, take new data again."""
    request = pb.DrainWorkersRequest(workers=workers, cancel=True)
    reply: pb.DrainWorkersReply = ask(masters, "Admin/DrainWorkers", request)
    document = {"workers": [worker_record(each) for each in reply.workers]}
    show(document, as_json, lambda screen: _draw(document, screen))


@click.command()
@_names
@masters_option
@json_option
def remove(workers: tuple[str, ...], masters: str, as_json: bool) -> None:
    """Say that lost workers (names or numbers), or all workers of lost hosts, never come back: they are gone.
    Alerts end, their host can be drained, and copies that they had are made again at once.

    A new worker may have their names then. Exit 1 if one is not lost: drain that, and stop it. Nothing is deleted, and
    one that does come back is alive again.
    """
    reply: pb.RemoveWorkersReply = ask(masters, "Admin/RemoveWorkers", pb.RemoveWorkersRequest(workers=workers))
    document = {"workers": [worker_record(each) for each in reply.workers]}
    show(document, as_json, lambda screen: _draw(document, screen))


_SPAN = re.compile(r"([1-9][0-9]{0,6})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_until(text: str, now: datetime) -> float:
    """How long it is from `now`, of the same clock, to a time of day, the next one, or how long a span is. Raises
    ConfigError."""
    if span := _SPAN.fullmatch(text):
        return float(int(span[1]) * _SECONDS[span[2]])
    try:
        at = datetime.combine(now.date(), time.fromisoformat(text), now.tzinfo)
    except (ValueError, TypeError):
        raise ConfigError(f"--by is a time of day such as 18:30, or a span such as 90m or 2h, not {text!r}") from None
    return ((at if at > now else at + timedelta(days=1)) - now).total_seconds()


async def _drain(
    client: ControlClient, request: pb.DrainWorkersRequest, no_wait: bool, purpose: Purpose, step: Step
) -> list[pb.WorkerInfo]:
    found = list((await answer(client, "Admin/DrainWorkers", request)).workers)
    ends = asyncio.get_running_loop().time() + request.within_ms / 1000 if request.within_ms else math.inf
    hosts = {each.host for each in found}.intersection(request.workers)
    while not no_wait and not all(_is_safe(each, purpose) for each in found):
        step(found)
        await asyncio.sleep(_LOOK_SECONDS)
        listed = await _listed(client, ends)
        now = {each.worker: each for each in listed.workers}
        found = [_still_drains(before, now.get(before.worker), purpose) for before in found]
        known = {each.worker for each in found}
        for came in listed.workers:
            if came.host in hosts and came.worker not in known and came.state not in AWAY:
                raise HoldfastError(
                    f"{came.name} has come back to {came.host}, and takes data; drain {came.host} again"
                )
        late = [each for each in found if request.within_ms and each.drain.left_ms <= 0 and not _is_safe(each, purpose)]
        if late:
            raise HoldfastError(f"the time is over, and {'; '.join(_lines(late))}")
    return found


async def _listed(client: ControlClient, ends: float) -> pb.ListWorkersReply:
    """Ask for the workers until masters answer, since the drain goes on without them, but not beyond the time at which
    it has to be over."""
    said = False
    while True:
        try:
            reply: pb.ListWorkersReply = await answer(client, "Admin/ListWorkers", pb.ListWorkersRequest())
        except RetryError as error:
            if asyncio.get_running_loop().time() > ends:
                raise
            if not said:
                click.echo(f"holdfast: the drain goes on, and is looked at again: {visible(str(error))}", err=True)
            said = True
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            return reply


def _still_drains(before: pb.WorkerInfo, now: pb.WorkerInfo | None, purpose: Purpose) -> pb.WorkerInfo:
    """Return the worker as it is now. Raises HoldfastError if nothing that is waited for can come any more."""
    if now is not None and now.state == GONE and purpose is Purpose.REMOVAL:
        return now  # stopped once it might be
    if now is None or now.state in AWAY:
        raise HoldfastError(f"{before.name} is lost; before that, {before.drain.waits or 'it was safe'}")
    if now.incarnation != before.incarnation:
        raise HoldfastError(f"{before.name} has started again, and a new start takes data; drain it again if need be")
    if now.state != "draining":
        raise HoldfastError(f"the drain of {before.name} was cancelled")
    return now


def _is_safe(worker: pb.WorkerInfo, purpose: Purpose) -> bool:
    if purpose is Purpose.REMOVAL:
        return worker.drain.removal or worker.state == GONE
    return worker.drain.restart


def _draw(document: Document, screen: Console) -> None:
    columns = ("?#id", "worker", "state", "?#open partitions", "?#unsealed", "?#shuffles kept", "may be", "waits for")
    rows = []
    for each in document["workers"]:
        progress = each["drain"] or {}
        may = "removed" if progress.get("removal") else "restarted" if progress.get("restart") else ""
        counts = [progress.get(key, "") for key in ("epochs", "writing", "shuffles")]
        shown = ["-" if count is None else count for count in counts]
        rows.append((each["worker"], each["name"], each["state"], *shown, may, progress.get("waits", "")))
    screen.print(Fitted(columns, rows))
    for each in document["workers"]:
        if each["drain"] and each["drain"]["left_ms"] is not None:
            screen.print(f"{escape(each['name'])}{leaving_text(each['drain'])}", soft_wrap=True)
    if document.get("safe"):  # only a drain waits for that
        them = "it" if len(rows) == 1 else "them"
        screen.print(
            f"safe: stop {them} with `systemctl stop`, or SIGTERM where nothing restarts {them}", soft_wrap=True
        )


@contextmanager
def _screen() -> Iterator[Step]:
    """Yield what shows progress on standard error: a line for each worker, drawn over where a person watches."""
    screen = console(stderr=True)
    if screen.is_terminal:
        from rich.live import Live

        with Live(console=screen, transient=True) as live:
            yield lambda found: live.update("\n".join(_lines(found)))
        return
    progress: dict[str, str] = {}

    def step(found: Sequence[pb.WorkerInfo]) -> None:
        for worker, line in zip(found, _lines(found), strict=True):
            if progress.get(worker.name) != line:
                progress[worker.name] = line
                click.echo(line, err=True)

    yield step


def _lines(found: Sequence[pb.WorkerInfo]) -> list[str]:
    return [f"{each.name}: {each.drain.waits or 'safe'}" for each in found]
