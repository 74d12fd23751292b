"""`holdfast ca` and `holdfast token`: what a secured cluster and its users are given. No server is asked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.limits import NAME_BYTES_MAX
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.tools.cli.output import PATH, FiniteRange, ask_first, json_option, show, yes_option

_DAY_S = 86_400
_DAYS_MAX = 36_500


@click.group()
def ca() -> None:
    """Make a certificate authority for trials, and certificates of servers; docs/operate/security.md."""


@ca.command("init")
@click.argument("directory", type=PATH)
@click.option("--days", type=click.IntRange(1, 36_500), default=3_650, show_default=True, help="How long it is good.")
@json_option
def init(directory: Path, days: int, as_json: bool) -> None:
    """Make DIRECTORY/ca.pem and ca.key. Clients and servers get ca.pem; keep ca.key in a safe place."""
    from holdfast.common.security.authority import make_ca

    made = str(make_ca(directory, days))
    show({"files": [made]}, as_json, lambda screen: screen.print(made, markup=False, soft_wrap=True))


@ca.command("issue")
@click.argument("directory", type=PATH)
@click.argument("name")
@click.option("--host", "hosts", multiple=True, help="By which others reach it; may be repeated. Default: NAME.")
@click.option("--days", type=click.IntRange(1, 36_500), default=365, show_default=True, help="How long it is good.")
@json_option
def issue_(directory: Path, name: str, hosts: tuple[str, ...], days: int, as_json: bool) -> None:
    """Make NAME.pem and NAME.key in DIRECTORY, for the server NAME."""
    from holdfast.common.security.authority import issue

    made = [str(path) for path in issue(directory, name, hosts or (name,), days)]
    show({"files": made}, as_json, lambda screen: screen.print("\n".join(made), markup=False, soft_wrap=True))


@click.command()
@click.option(
    "--kind",
    type=click.Choice(["user", "viewer", "admin"]),
    required=True,
    help="user: registers applications; viewer: reads state; admin: also changes it.",
)
@click.option("--name", default="", help="The owner. Required for a user: the user's name.")
@click.option(
    "--days",
    type=FiniteRange(0, _DAYS_MAX, min_open=True),
    default=90.0,
    show_default=True,
    help="Its life.",
)
@click.option("--secret-file", required=True, type=PATH, help="The cluster's secret, as masters have it.")
@click.option("--cluster", required=True, help="The cluster's id, as in [cluster] of the masters.")
@click.option("--out", type=PATH, help="Write it there, mode 0600; asks if a file is there. Default: standard output.")
@yes_option
@json_option
def token(
    kind: str, name: str, days: float, secret_file: Path, cluster: str, out: Path | None, yes: bool, as_json: bool
) -> None:
    """Make a token. Its bearer has its identity until it expires: it cannot be revoked before.

    Put it into a file, and set HOLDFAST_TOKEN_FILE and HOLDFAST_CA, or the Spark settings of docs/use/spark.md.
    """
    from holdfast.common.security.server import read_secret

    if kind == "user" and not name:
        raise ConfigError("a token of a user needs --name, the name of that user")
    subject = _text("--name", name or kind)
    _text("--cluster", cluster)
    keeper = Keeper(read_secret(str(secret_file), private=True), cluster)
    now, life = int(time.time()), max(int(days * _DAY_S), 1)
    made = keeper.mint(TokenKind[kind.upper()], subject, now, life)
    document = {"kind": kind, "name": name or kind, "cluster": cluster, "ends_s": now + life}
    if out is None:
        show(document | {"token": made}, as_json, lambda screen: screen.print(made, markup=False, soft_wrap=True))
        return
    from holdfast.common.system.files import write_whole

    if out.is_file() and not out.is_symlink():  # of what is no file it is said below that it stays
        ask_first(f"this replaces {out}", yes, as_json)
    try:
        write_whole(out, f"{made}\n".encode(), 0o600)
    except FileExistsError:
        raise ConfigError(f"--out {out} exists, and is not a regular file: name another, or leave --out out") from None
    except OSError as error:
        raise HoldfastError(f"cannot write {out}: {error.strerror or error}") from error
    if as_json:
        click.echo(json.dumps(document | {"file": str(out)}, indent=2))


def _text(option: str, given: str) -> bytes:
    """The content of a token, as bytes. Raises ConfigError."""
    raw = given.encode()
    if len(raw) > NAME_BYTES_MAX:
        raise ConfigError(f"{option} has {len(raw)} bytes; at most {NAME_BYTES_MAX} are allowed")
    return raw
