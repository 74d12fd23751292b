"""`holdfast events`: the latest events of all masters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import ConfigError, HoldfastError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.asking import each_master, refused, with_masters
from holdfast.tools.cli.output import Fitted, console, escape, json_option, masters_option, show

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.common.net.control import ControlClient

_LEVELS = ("info", "warning", "error")
_STYLES = {"warning": "yellow", "error": "bold red"}
_LIMIT_MAX = 3_000
#: Between two looks of --follow.
_LOOK_SECONDS = 1.0
_KEYS = ("time_ms", "level", "event", "subject", "text", "times", "master", "raft_index")


@click.command()
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, _LIMIT_MAX), help="So many at most.")
@click.option(
    "--least", default="info", show_default=True, type=click.Choice(_LEVELS), help="Only what matters as much."
)
@click.option("--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@masters_option
@json_option
def events(limit: int, least: str, follow: bool, masters: str, as_json: bool) -> int:
    """Show the latest events, oldest first: workers, shuffles, leaders, disks, refusals.

    All masters are asked: an event of the log is shown once, an event of one master with its name. Exit 1
    if no master answers.
    """
    if follow and as_json:
        raise ConfigError("--follow never ends, and --json is one document: choose one of the two")
    found, seen, silent = with_masters(masters, lambda client: _ask(client, limit, least, {}))
    document = {"events": found, "masters_silent": silent}
    show(document, as_json, lambda screen: _draw(found, silent, screen))
    if follow:
        with suppress(KeyboardInterrupt):
            with_masters(masters, lambda client: _follow(client, least, seen))
    return 0


async def _ask(
    client: ControlClient, limit: int, least: str, seen: Mapping[str, int]
) -> tuple[list[dict[str, Any]], dict[str, int], list[str]]:
    """Return the events after the numbers `seen` of each master, the numbers now, and the silent masters."""

    def request(address: str) -> pb.ListEventsRequest:
        return pb.ListEventsRequest(after=seen.get(address, 0), limit=limit, least=least)

    answers = await each_master(client, client.endpoints, "Admin/ListEvents", request)
    replies = {address: each for address, each in answers.items() if isinstance(each, pb.ListEventsReply)}
    if not replies:
        refusals = [each for each in answers.values() if refused(each)]
        raise refusals[0] if refusals else RetryError(f"no master answers: {next(iter(answers.values()))}")
    merged = merge(each for reply in replies.values() for each in reply.events)[-limit:]
    # A master that was started again counts from 1.
    last = {address: reply.last for address, reply in replies.items()}
    return merged, {**seen, **last}, sorted(set(answers) - set(replies))


def merge(printed: Iterable[pb.Event]) -> list[dict[str, Any]]:
    """Merge the events of several masters: each event of the log once; oldest first."""
    found: dict[tuple[object, ...], pb.Event] = {}
    for each in printed:
        once = (each.raft_index, each.event, each.subject, each.text) if each.raft_index else (each.master, each.number)
        found.setdefault(once, each)
    ordered = sorted(found.values(), key=lambda each: (each.time_ms, each.raft_index, each.number))
    return [{key: getattr(each, key) for key in _KEYS} for each in ordered]


async def _follow(client: ControlClient, least: str, seen: dict[str, int]) -> None:
    """Print new events until it is interrupted; an event that several masters report is printed once."""
    screen = console()
    printed: dict[tuple[object, ...], None] = {}
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            found, seen, _ = await _ask(client, _LIMIT_MAX, least, seen)
        except HoldfastError as error:
            click.echo(f"holdfast: {error}", err=True)
            continue
        for each in found:
            once = (each["raft_index"] or (each["master"], each["time_ms"]), each["text"])
            if once not in printed:
                printed[once] = None
                screen.print(_line(each), soft_wrap=True)
        while len(printed) > _LIMIT_MAX:
            del printed[next(iter(printed))]


def _moment(event: Mapping[str, Any]) -> str:
    return f"{datetime.fromtimestamp(event['time_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _line(event: Mapping[str, Any]) -> str:
    style = _STYLES.get(event["level"])
    level = f"[{style}]{event['level']}[/]" if style else event["level"]
    return f"{_moment(event)} {level} {event['event']} {escape(_text(event))}"


def _text(event: Mapping[str, Any]) -> str:
    who = f"{event['master']}: " if event["master"] else ""
    times = f" ({event['times']} times)" if event["times"] > 1 else ""
    return f"{who}{event['text']}{times}"


def _draw(found: list[dict[str, Any]], silent: list[str], screen: Console) -> None:
    from rich.text import Text

    rows = [
        (_moment(each), Text(each["level"], _STYLES.get(each["level"], "")), each["event"], _text(each))
        for each in found
    ]
    screen.print(Fitted(("time (UTC)", "level", "?event", "what happened"), rows))
    if silent:
        screen.print(f"not asked, since they do not answer: {escape(', '.join(silent))}")
