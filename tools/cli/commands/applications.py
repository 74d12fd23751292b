"""`holdfast applications`, `holdfast forget`: lists the applications with data, and drops one.

Rules: people name an application by its name, its instance (or how that begins) or its id in Spark. A name that several
have is refused with the list of them: all shells are called `pyspark-shell`. What is dropped was shown before.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import ConfigError
from holdfast.common.ids import INSTANCE_BYTES, read_shuffle_name, shuffle_name
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes
from holdfast.common.visible import visible
from holdfast.tools.cli.asking import answer, ask, with_masters
from holdfast.tools.cli.output import in_seconds, json_option, masters_option, show, table

if TYPE_CHECKING:
    from holdfast.common.net.control import ControlClient

INSTANCE = re.compile(rf"[0-9a-f]{{{2 * INSTANCE_BYTES}}}")
#: How an instance begins; fewer digits could be a misspelled name.
_BEGINNING = re.compile(r"[0-9a-f]{4,}")
_LIST = ("Admin/ListApplications", pb.ListApplicationsRequest())
#: Applications that an error lists.
_LISTED_MAX = 20
#: Shuffles of one application among which one is looked for.
_LOOKED_AT_MAX = 10_000


async def find_application(client: ControlClient, named: str) -> pb.ApplicationInfo:
    """Return the one live application of this name; raises ConfigError unless there is exactly one."""
    found, now_ms = await _called(client, named)
    if not found:
        raise ConfigError(f'no application is called "{named}": `holdfast applications` lists them')
    return _only(named, found, now_ms)


async def _called(client: ControlClient, named: str) -> tuple[list[pb.ApplicationInfo], int]:
    reply: pb.ListApplicationsReply = await answer(client, *_LIST)
    if INSTANCE.fullmatch(named):
        return [each for each in reply.applications if each.instance.hex() == named], reply.now_ms
    found = [each for each in reply.applications if named in (each.name, each.spark_id)]
    if not found and _BEGINNING.fullmatch(named):
        found = [each for each in reply.applications if each.instance.hex().startswith(named)]
    return found, reply.now_ms


async def _has(client: ControlClient, known: pb.ApplicationInfo, shuffle: int) -> bool:
    """Whether the application has the shuffle, or has too many to look through."""
    request = pb.ListShufflesRequest(instance=known.instance, limit=_LOOKED_AT_MAX)
    reply: pb.ListShufflesReply = await answer(client, "Admin/ListShuffles", request)
    return reply.total > len(reply.shuffles) or any(each.key.shuffle == shuffle for each in reply.shuffles)


def _nothing(reason: str) -> int:
    click.echo(f"holdfast: {reason}", err=True)
    return 1


def _only(named: str, found: Sequence[pb.ApplicationInfo], now_ms: int) -> pb.ApplicationInfo:
    if len(found) == 1:
        return found[0]
    lines = [f"  {_sentence(each, now_ms)}" for each in found[:_LISTED_MAX]]
    if len(found) > _LISTED_MAX:
        lines.append(f"  and {len(found) - _LISTED_MAX} more: `holdfast applications` lists all")
    head = f'{len(found)} applications are called "{named}"; name the one you mean by its instance or its id in Spark:'
    raise ConfigError("\n".join([head, *lines]))


def _sentence(each: pb.ApplicationInfo, now_ms: int) -> str:
    spark = f", {visible(each.spark_id)} in Spark" if each.spark_id else ""
    holds = f"{counted(each.shuffles, 'shuffle')}, {in_bytes(each.bytes)}"
    whose = f"{visible(each.name)} of {visible(each.user)}" if each.user else visible(each.name)
    return f"{each.instance.hex()}  {whose}{spark}, {_age(each, now_ms)} old, {holds}"


def _age(each: pb.ApplicationInfo, now_ms: int) -> str:
    return in_seconds(max(now_ms - each.created_ms, 0) // 1000)


def _document(each: pb.ApplicationInfo) -> dict[str, Any]:
    return {
        "instance": each.instance.hex(),
        **{key: getattr(each, key) for key in ("name", "user", "spark_id", "created_ms", "shuffles", "bytes", "why")},
    }


def shuffle_of(named: str) -> tuple[str, int, int | None]:
    """Return application, shuffle and, where it is named, generation. Raises ConfigError."""
    try:
        return read_shuffle_name(named)
    except ValueError as error:
        raise ConfigError(str(error)) from None


@click.command()
@masters_option
@json_option
def applications(masters: str, as_json: bool) -> None:
    """List the live applications: their names, what they hold and what keeps them. With a user's token: that
    user's."""
    reply: pb.ListApplicationsReply = ask(masters, *_LIST)
    columns = ("instance", "application", "user", "in Spark", "#age", "#shuffles", "#bytes", "why")
    rows = [
        (
            *(each.instance.hex()[:8], each.name, each.user, each.spark_id, _age(each, reply.now_ms)),
            *(each.shuffles, in_bytes(each.bytes), each.why),
        )
        for each in reply.applications
    ]
    document = {"applications": [_document(each) for each in reply.applications]}
    show(document, as_json, lambda screen: screen.print(table(columns, rows) if rows else "no applications"))


def _what(application: str | None, named: str | None) -> tuple[str, int | None]:
    """What is to be dropped. Raises ConfigError."""
    if named is None and application is not None:
        return application, None
    if named is None or application is not None:
        raise ConfigError("name what to drop: either APPLICATION or --shuffle APPLICATION/SHUFFLE")
    application, shuffle, generation = shuffle_of(named)
    if generation is not None:
        all_of_it = shuffle_name(application, shuffle)
        raise ConfigError(f"all generations of a shuffle are dropped together: write {all_of_it}")
    return application, shuffle


@click.command()
@click.argument("application", required=False)
@click.option("--shuffle", "named", metavar="APPLICATION/SHUFFLE", help="Only this shuffle of an application.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be dropped, and drop nothing.")
@masters_option
@json_option
def forget(application: str | None, named: str | None, yes: bool, dry_run: bool, masters: str, as_json: bool) -> int:
    """Drop APPLICATION, or one shuffle of it, at once, even if it has leases; asks first.

    APPLICATION is a name, an instance (32 hex digits, or at least the first 4) or an id in Spark; a name that several
    have is refused with the list of them. With a user's token: only that user's. A full instance that is unknown to
    the masters is remembered as dropped: workers that still have data of it (see their status) delete that. Exit 1
    if nothing was dropped: no such application, or no such shuffle of it.
    """
    application, shuffle = _what(application, named)
    found, now_ms = with_masters(masters, lambda client: _called(client, application))
    known = _only(application, found, now_ms) if found else None
    if known is not None:
        what = _sentence(known, now_ms)
        if shuffle is not None and not with_masters(masters, lambda client: _has(client, known, shuffle)):
            return _nothing(f"there is no shuffle {named} of {what}")
    elif INSTANCE.fullmatch(application):
        what = f"instance {application}, unknown to the masters: workers delete the data of it that they have"
    else:
        return _nothing(f'no application is called "{application}": `holdfast applications` lists them')
    what = f"shuffle {named} of {what}" if shuffle is not None else what
    if dry_run:
        shown = {"would_drop": _document(known) if known is not None else {"instance": application}, "shuffle": shuffle}
        show(shown, as_json, lambda screen: screen.print(f"would drop {what}", markup=False))
        return 0
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise ConfigError(f"this drops {what}\nNo terminal to ask for confirmation: pass --yes or --dry-run")
        click.confirm(f"Drop {what}?", abort=True, err=True)
    instance = known.instance if known is not None else bytes.fromhex(application)
    request = pb.ForgetRequest(instance=instance, one_shuffle=shuffle is not None, shuffle=shuffle or 0)
    reply: pb.ForgetReply = ask(masters, "Admin/Forget", request)
    document = {"applications": reply.applications, "shuffles": reply.shuffles}
    text = f"dropped {counted(reply.applications, 'application')} and {counted(reply.shuffles, 'shuffle')}"
    show(document, as_json, lambda screen: screen.print(text))
    return 0 if reply.applications or reply.shuffles else 1
