"""`holdfast handover`, `backup`, `restore`: what is done to masters as they are looked after."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.common.errors import ConfigError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.asking import ANSWER_SECONDS_MAX, with_masters
from holdfast.tools.cli.output import Document, json_option, masters_option, show

if TYPE_CHECKING:
    from rich.console import Console

_config_option = click.option(
    "--config", "config", required=True, type=click.Path(path_type=Path), help="The master's TOML file."
)


@click.command()
@click.option("--to", default="", metavar="MASTER", help="Who shall lead. Default: whichever master is furthest on.")
@click.option("--away-from", default="", metavar="MASTER", help="Do nothing unless this one is the leader.")
@masters_option
@json_option
def handover(to: str, away_from: str, masters: str, as_json: bool) -> int:
    """Have another master lead. Calls go on: those that meet the change are repeated by the clients.

    The leader stops taking commands for some milliseconds, has the other one stand for election with the whole log, and
    leads on if that does not come about. Exit 1 then; ask again.
    """
    request = pb.HandOverRequest(to=to, away_from=away_from)
    reply: pb.HandOverReply = with_masters(
        masters, lambda client: client.call("Admin/HandOver", request, deadline_s=ANSWER_SECONDS_MAX)
    )
    document = {"leader": reply.leader, "before": reply.before, "changed": reply.leader != reply.before}
    show(document, as_json, lambda screen: _draw(document, screen))
    return 0


def _draw(document: Document, screen: Console) -> None:
    changed = f"{document['leader']} is the leader, after {document['before']}"
    screen.print(changed if document["changed"] else f"{document['leader']} is the leader, as before")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_config_option
@json_option
def backup(file: Path, config: Path, as_json: bool) -> None:
    """Copy the state of the master that CONFIG describes to FILE, while it runs or after its end.

    Run it on the master's machine, as its user. Any one master will do; `holdfast restore` makes all of them from it.
    """
    _become("backup", file, config, as_json)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_config_option
@json_option
def restore(file: Path, config: Path, as_json: bool) -> None:
    """Make the empty directory of the master that CONFIG describes from a backup.

    For a cluster whose masters are all lost: stop what is left, put every master's directory aside, restore the same
    FILE on each of them, then start all. One lost master alone needs no backup: started empty it gets all from the
    others.
    """
    _become("restore", file, config, as_json)


def _become(what: str, file: Path, config: Path, as_json: bool) -> None:
    """Replace this process by the one that reads a master's files: the command line has no business with them."""
    if not config.is_file():
        raise ConfigError(f"there is no file {config}: give --config the master's TOML file")
    words = [sys.executable, "-P", "-m", "holdfast.master.backup", what, str(file), "--config", str(config)]
    os.execv(sys.executable, [*words, *(["--json"] if as_json else [])])
