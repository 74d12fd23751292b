"""`holdfast apps`, `holdfast forget`: lists the applications with data, and drops one.

Rules: what is dropped was shown before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.common.errors import ConfigError
from holdfast.common.ids import read_shuffle_name, shuffle_name
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes
from holdfast.tools.cli.asking import ask, with_masters
from holdfast.tools.cli.naming import INSTANCE, age, called, described, newest_generation, not_called, the_one
from holdfast.tools.cli.output import (
    Fitted,
    ask_first,
    dry_run_option,
    json_option,
    masters_option,
    show,
    watched,
    yes_option,
)
from holdfast.tools.cli.records import application_record

if TYPE_CHECKING:
    from holdfast.common.net.control import ControlClient


def _nothing(reason: str) -> int:
    click.echo(f"holdfast: {reason}", err=True)
    return 1


@click.command()
@click.option("--user", default="", metavar="USER", help="Only of this user.")
@watched
@masters_option
@json_option
def apps(user: str, masters: str, as_json: bool) -> None:
    """List the live applications: their names, what they hold and what keeps them. With a user's token: that
    user's."""
    reply: pb.ListApplicationsReply = ask(masters, "Admin/ListApplications", pb.ListApplicationsRequest())
    listed = [each for each in reply.applications if user in ("", each.user)]
    columns = ("instance", "application", "user", "?in Spark", "#age", "?#shuffles", "#bytes", "?why")
    rows = [
        (
            *(each.instance.hex()[:8], each.name, each.user, each.spark_id, age(each, reply.now_ms)),
            *(each.shuffles, in_bytes(each.bytes), each.why),
        )
        for each in listed
    ]
    document = {"applications": [application_record(each) for each in listed]}
    show(document, as_json, lambda screen: screen.print(Fitted(columns, rows) if rows else "no applications"))


def _read(named: str) -> tuple[str, int | None]:
    """What is to be dropped: an application, or one shuffle of it. What ends like the name of a shuffle is one, so that
    never more goes than was meant. Raises ConfigError."""
    try:
        application, shuffle, generation = read_shuffle_name(named)
    except ValueError:
        return named, None
    if generation is not None:
        all_of_it = shuffle_name(application, shuffle)
        raise ConfigError(f"all generations of a shuffle are dropped together: write {all_of_it}")
    return application, shuffle


@click.command()
@click.argument("what", metavar="APP[/SHUFFLE]")
@yes_option
@dry_run_option
@masters_option
@json_option
def forget(what: str, yes: bool, dry_run: bool, masters: str, as_json: bool) -> int:
    """Drop APP, or one shuffle of it, at once, even if it has leases; asks first.

    APP is a name, an instance (32 hex digits, or at least the first 4) or an id in Spark; a name that several have is
    refused with the list of them, and one that ends like a shuffle's, as in "daily/7", is not taken for an
    application's: use its instance. With a user's token: only that user's. A full instance that is unknown to
    the masters is remembered as dropped: workers that still have data of it (see their status) delete that. Exit 1
    if nothing was dropped: no such application, or no such shuffle of it.
    """
    application, shuffle = _read(what)

    async def look(client: ControlClient) -> tuple[pb.ApplicationInfo | None, str, bool]:
        """Return the application, what people call it, and whether it has the shuffle."""
        found, now_ms = await called(client, application)
        if not found:
            return None, "", False
        known = the_one(application, found, now_ms)
        has = shuffle is None or await newest_generation(client, known, shuffle) is not None
        return known, described(known, now_ms), has

    known, whose, has = with_masters(masters, look)
    if known is None:
        if not INSTANCE.fullmatch(application):
            return _nothing(not_called(application))
        whose = f"instance {application}, unknown to the masters: workers delete the data of it that they have"
    elif not has:
        return _nothing(f"there is no shuffle {what} of {whose}")
    goes = f"shuffle {what} of {whose}" if shuffle is not None else whose
    if dry_run:
        shown = {
            "would_drop": application_record(known) if known is not None else {"instance": application},
            "shuffle": shuffle,
        }
        show(shown, as_json, lambda screen: screen.print(f"would drop {goes}", markup=False))
        return 0
    ask_first(f"this drops {goes}", yes, as_json)
    instance = known.instance if known is not None else bytes.fromhex(application)
    request = pb.ForgetRequest(instance=instance, one_shuffle=shuffle is not None, shuffle=shuffle or 0)
    reply: pb.ForgetReply = ask(masters, "Admin/Forget", request)
    document = {"applications": reply.applications, "shuffles": reply.shuffles}
    text = f"dropped {counted(reply.applications, 'application')} and {counted(reply.shuffles, 'shuffle')}"
    show(document, as_json, lambda screen: screen.print(text))
    return 0 if reply.applications or reply.shuffles else 1
