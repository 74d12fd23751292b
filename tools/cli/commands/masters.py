"""`holdfast handover`, `backup`, `restore`: what is done to masters as they are looked after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.asking import ask
from holdfast.tools.cli.commands.servers import become
from holdfast.tools.cli.output import PATH, Document, json_option, masters_option, show

if TYPE_CHECKING:
    from rich.console import Console

_config_option = click.option("--config", "config", required=True, type=PATH, help="The master's TOML file.")


@click.command()
@click.option("--to", default="", metavar="MASTER", help="The next leader. Default: the master with the longest log.")
@click.option("--away-from", default="", metavar="MASTER", help="Do nothing unless this one is the leader.")
@masters_option
@json_option
def handover(to: str, away_from: str, masters: str, as_json: bool) -> int:
    """Hand the leadership to another master. Calls continue: clients repeat those that meet the change.

    The leader stops taking commands for some milliseconds, has the other one start an election with the whole log, and
    remains the leader if that fails. Exit 1 then; try again.
    """
    request = pb.HandOverRequest(to=to, away_from=away_from)
    reply: pb.HandOverReply = ask(masters, "Admin/HandOver", request)
    document = {"leader": reply.leader, "before": reply.before, "changed": reply.leader != reply.before}
    show(document, as_json, lambda screen: _draw(document, screen))
    return 0


def _draw(document: Document, screen: Console) -> None:
    changed = f"{document['leader']} is the leader, after {document['before']}"
    screen.print(changed if document["changed"] else f"{document['leader']} is the leader, as before")


@click.command()
@click.argument("file", type=PATH)
@_config_option
@json_option
def backup(file: Path, config: Path, as_json: bool) -> None:
    """Copy the state of the master that CONFIG describes to FILE, while it runs or after its end.

    Run it on the master's machine, as its user. Any one master will do; `holdfast restore` makes all of them from it.
    """
    _files("backup", file, config, as_json)


@click.command()
@click.argument("file", type=PATH)
@_config_option
@json_option
def restore(file: Path, config: Path, as_json: bool) -> None:
    """Make the empty directory of the master that CONFIG describes from a backup.

    For a cluster whose masters are all lost: stop what is left, move every master's directory away, restore the same
    FILE on each of them, then start all. One lost master alone needs no backup: started empty it gets all from the
    others.
    """
    _files("restore", file, config, as_json)


def _files(what: str, file: Path, config: Path, as_json: bool) -> None:
    """Leave a master's files to a process of the master: the command line has no business with them."""
    become("master", config, "holdfast.master.backup", what, str(file), *(["--json"] if as_json else []))
