"""`holdfast local`, `holdfast master`, `holdfast worker`: the commands that start servers."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import ConfigError
from holdfast.tools.cli.output import PATH, console, json_option, state_option, table

if TYPE_CHECKING:
    from holdfast.client.cluster.server import Server

_config_option = click.option(
    "--config", "file", required=True, type=PATH, help="The TOML file; see docs/operate/configuration.md."
)


@click.command()
@click.option("--masters", default=3, show_default=True, help="How many masters: 1, 3 or 5.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="How many workers, each on a host of its own: 2 unless --hosts is given.",
)
@click.option("--hosts", type=click.IntRange(min=1), help="How many hosts, each with --workers-per-host workers.")
@click.option(
    "--workers-per-host",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many workers each.",
)
@state_option
@click.option(
    "--secure", is_flag=True, help="With TLS and tokens; their files are made in DIR/security; needs the extra ca."
)
@json_option
def local(
    masters: int,
    workers: int | None,
    hosts: int | None,
    workers_per_host: int,
    directory: Path | None,
    secure: bool,
    as_json: bool,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C or SIGTERM.

    With --json one line is printed as soon as the cluster is ready: endpoints, directory, and where every server is.
    """
    from holdfast.client.cluster.local import ADMIN_TOKEN, CA_CERTIFICATE, SECURITY, local_cluster

    if workers is not None and hosts is not None:
        raise ConfigError("--workers is the number of hosts with one worker each: give --workers or --hosts, not both")
    leave = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: leave.set())
    with local_cluster(
        masters, workers, directory, hosts=hosts, workers_per_host=workers_per_host, secure=secure
    ) as cluster:
        keys = ("name", "role", "host", "pid", "address", "http")
        servers = [{key: getattr(server, key) for key in keys} for server in cluster.servers]
        document = {"endpoints": cluster.endpoints, "directory": str(cluster.directory), "servers": servers}
        document |= {"leader": cluster.leader().address}
        if secure:
            folder = cluster.directory / SECURITY
            document |= {"ca": str(folder / CA_CERTIFICATE), "token_file": str(folder / ADMIN_TOKEN)}
        _announce(document, as_json)
        gone: set[str] = set()
        while not leave.wait(1.0):
            for server in cluster.servers:
                if not server.running and server.name not in gone:
                    gone.add(server.name)
                    click.echo(_ended(server), err=True)


def _ended(server: Server) -> str:
    again = f"to start it again, in another shell: holdfast {server.role} --config {server.config}"
    return f"holdfast: {server.role} {server.name} has ended; its log is {server.log}\n          {again}"


def _announce(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
        return
    screen = console()
    rows = [
        (*(one[key] for key in ("name", "role", "host", "http")), _data_plane(one), one["pid"])
        for one in document["servers"]
    ]
    screen.print(table(("name", "role", "host", "http", "data plane", "#pid"), rows))
    screen.print(f"state and logs   {document['directory']}")
    screen.print(f"in another shell export HOLDFAST_MASTERS={document['endpoints']}", soft_wrap=True)
    if "ca" in document:
        variables = f"HOLDFAST_CA={document['ca']} HOLDFAST_TOKEN_FILE={document['token_file']}"
        screen.print(f"and              export {variables}", soft_wrap=True)
    scheme = "https" if "ca" in document else "http"
    screen.print(f"in a browser     {scheme}://{document['leader']}/", soft_wrap=True)
    screen.print(f'in Python        holdfast.connect("{document["endpoints"]}", app="first try")', soft_wrap=True)
    screen.print("Press Ctrl-C to stop the cluster.")


def _data_plane(server: dict[str, Any]) -> str:
    return str(server["address"]) if server["role"] == "worker" else ""


@click.command()
@_config_option
def master(file: Path) -> None:
    """Run one master; it logs to standard error and prints one line of JSON when it serves."""
    become("master", file, "holdfast.master")


@click.command()
@_config_option
def worker(file: Path) -> None:
    """Run one worker; it logs to standard error and prints one line of JSON when it serves."""
    become("worker", file, "holdfast.worker")


def become(role: str, file: Path, module: str, *words: str) -> None:
    """Replace this process by one that has the file of a server, so that signals and exit status are its own."""
    if not file.is_file():
        raise ConfigError(f"there is no file {file}: give --config the {role}'s TOML file")
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *words, "--config", str(file)])
