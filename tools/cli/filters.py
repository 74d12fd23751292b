"""Which workers a command is about: its arguments and options, and the choice. Used by `workers` and `top`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.common.errors import HoldfastError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.worker_states import ALIVE, DRAINING, GONE, LOST

names_argument = click.argument("names", nargs=-1, metavar="[WORKER|HOST]…")
hosts_option = click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Only workers on this host; may be repeated."
)
racks_option = click.option(
    "--rack",
    "racks",
    multiple=True,
    metavar="RACK",
    help="Only workers in this rack: its name, or /region/rack; may be repeated.",
)
states_option = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([ALIVE, DRAINING, LOST, GONE]),
    help="Only workers in this state; may be repeated.",
)


def chosen(
    workers: Sequence[pb.WorkerInfo],
    texts: Sequence[str],
    hosts: Sequence[str] = (),
    states: Sequence[str] = (),
    racks: Sequence[str] = (),
) -> list[pb.WorkerInfo]:
    """Return the workers of hosts, or where no host has that name those with a name or number, as `drain` takes them;
    all of them if nobody is named. Of these those on `hosts`, in `states` and in `racks`, if any are given; a rack is
    the last part of a place or the whole place. Raises HoldfastError."""
    found: set[int] = set()
    for text in texts:
        of_host = [each.worker for each in workers if each.host == text]
        of_name = [each.worker for each in workers if each.name == text]
        meant = of_host or of_name or [each.worker for each in workers if str(each.worker) == text]
        if not meant:
            raise HoldfastError(f'there is no worker or host "{text}": `holdfast workers` lists all')
        found.update(meant)
    return [
        each
        for each in workers
        if (not texts or each.worker in found)
        and (not hosts or each.host in hosts)
        and (not states or each.state in states)
        and (not racks or each.place in racks or each.place.rpartition("/")[2] in racks)
    ]
