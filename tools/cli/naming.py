"""How people name applications and shuffles, the same in all commands.

Rules: an application is named by its name, its instance (32 hex digits, or how that begins) or its id in Spark. A name
that several have is refused with the list of them: all shells are called `pyspark-shell`. A shuffle is
`APP/SHUFFLE[/GENERATION]`; without a generation it is the newest one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.ids import INSTANCE_BYTES, read_shuffle_name, shuffle_name
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes
from holdfast.common.visible import visible
from holdfast.tools.cli.asking import answer
from holdfast.tools.cli.output import in_seconds

if TYPE_CHECKING:
    from holdfast.common.net.control import ControlClient

INSTANCE = re.compile(rf"[0-9a-f]{{{2 * INSTANCE_BYTES}}}")
#: How an instance begins; fewer digits could be a misspelled name.
_BEGINNING = re.compile(r"[0-9a-f]{4,}")
#: Applications that an error lists.
_LISTED_MAX = 20
SHUFFLE = "APP/SHUFFLE[/GENERATION]"


class ShuffleName(NamedTuple):
    """What somebody called a shuffle."""

    application: str
    shuffle: int
    #: None: the newest one
    generation: int | None

    def __str__(self) -> str:
        if self.generation is None:
            return shuffle_name(self.application, self.shuffle)
        return f"{self.application}/{self.shuffle}/{self.generation}"


def read_name(text: str) -> ShuffleName:
    """Raises ConfigError for what names no shuffle."""
    try:
        return ShuffleName(*read_shuffle_name(text))
    except ValueError as error:
        raise ConfigError(str(error)) from None


#: The argument that names a shuffle: a ShuffleName, or None where it may be left out and is.
shuffle_argument = partial(
    click.argument,
    "shuffle",
    metavar=SHUFFLE,
    callback=lambda _, __, text: None if text is None else read_name(text),
)


async def find_application(client: ControlClient, named: str) -> pb.ApplicationInfo:
    """Return the one live application of this name. Raises HoldfastError if there is none, ConfigError if there are
    several."""
    found, now_ms = await called(client, named)
    if not found:
        raise HoldfastError(not_called(named))
    return the_one(named, found, now_ms)


def not_called(named: str) -> str:
    """That there is none, and where to look."""
    return f'no application is called "{named}": see `holdfast apps`; if it has ended, `holdfast events`'


async def called(client: ControlClient, named: str) -> tuple[list[pb.ApplicationInfo], int]:
    """Return the live applications of this name, and the cluster's time."""
    reply: pb.ListApplicationsReply = await answer(client, "Admin/ListApplications", pb.ListApplicationsRequest())
    if INSTANCE.fullmatch(named):
        return [each for each in reply.applications if each.instance.hex() == named], reply.now_ms
    found = [each for each in reply.applications if named in (each.name, each.spark_id)]
    if not found and _BEGINNING.fullmatch(named):
        found = [each for each in reply.applications if each.instance.hex().startswith(named)]
    return found, reply.now_ms


def the_one(named: str, found: Sequence[pb.ApplicationInfo], now_ms: int) -> pb.ApplicationInfo:
    """Return the only one. Raises ConfigError with the list of several."""
    if len(found) == 1:
        return found[0]
    lines = [f"  {described(each, now_ms)}" for each in found[:_LISTED_MAX]]
    if len(found) > _LISTED_MAX:
        lines.append(f"  and {len(found) - _LISTED_MAX} more: `holdfast apps` lists all")
    head = f'{len(found)} applications are called "{named}"; name the one you mean by its instance or its id in Spark:'
    raise ConfigError("\n".join([head, *lines]))


def described(each: pb.ApplicationInfo, now_ms: int) -> str:
    """The application with what tells it from others of its name."""
    spark = f", {visible(each.spark_id)} in Spark" if each.spark_id else ""
    holds = f"{counted(each.shuffles, 'shuffle')}, {in_bytes(each.bytes)}"
    whose = f"{visible(each.name)} of {visible(each.user)}" if each.user else visible(each.name)
    return f"{each.instance.hex()}  {whose}{spark}, {age(each, now_ms)} old, {holds}"


def age(each: pb.ApplicationInfo, now_ms: int) -> str:
    """How old it is, for people."""
    return in_seconds(max(now_ms - each.created_ms, 0) // 1000)


async def newest_generation(client: ControlClient, known: pb.ApplicationInfo, shuffle: int) -> int | None:
    """Return the newest generation of a shuffle of this application; None if it has no such shuffle."""
    request = pb.ListShufflesRequest(instance=known.instance, shuffle=shuffle)
    reply: pb.ListShufflesReply = await answer(client, "Admin/ListShuffles", request)
    return max((each.key.generation for each in reply.shuffles), default=None)
