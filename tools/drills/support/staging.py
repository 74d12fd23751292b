"""A staging cluster as the drills see it: servers elsewhere, killed, stopped and started by commands of an inventory.

    cluster = staging_cluster(Path("staging.toml"))     # docs/operate/drills.md has the format

Rules: nothing is known of a server but its addresses and its commands; whether it runs is asked of it. No shell runs a
command. Called by drill.py for `--inventory`.
"""

from __future__ import annotations

import shlex
import signal as signals
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.cluster.server import Server, StartError, wait_until
from holdfast.client.connection.direct import ask, worker_status
from holdfast.common.config.settings import read_toml
from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import CA_VARIABLE, TOKEN_VARIABLE, Credentials
from holdfast.common.security.tokens import TokenKind
from holdfast.common.strict_json import read_json
from holdfast.common.system.files import read_small_text

_COMMANDS = ("kill", "stop", "start")
_OPTIONAL = ("log",)
#: A command that takes longer hangs; a worker that ends in order may take its drain_timeout.
_COMMAND_SECONDS_MAX = 180.0
_START_SECONDS_MAX = 120.0
_ASK_SECONDS = 2.0
#: What a server must have in the inventory, by role.
_WANTED = {"master": ("name", "host", "http"), "worker": ("name", "host", "http", "data")}


class RemoteServer(Server):
    """A handle on a server that commands reach; see Server."""

    here = False

    def __init__(self, role: str, fields: Mapping[str, str], commands: Mapping[str, str], file: Path) -> None:
        super().__init__(
            role=role,
            name=fields["name"],
            address=fields["http"] if role == "master" else fields["data"],
            http=fields["http"],
            config=file,
            log=file,
            launcher=_NOBODY,
            host=fields["host"] if role == "worker" else "",
        )
        self._fields = dict(fields)
        self._commands = dict(commands)
        for what in self._commands:  # an unknown word is reported before anything is killed
            self._words(what, signals.SIGKILL)

    def __repr__(self) -> str:
        return f"RemoteServer({self.name}, {self.http})"

    @property
    def pid(self) -> int:
        """Not known here."""
        raise HoldfastError(f"{self.name} runs elsewhere: its process id is not known here")

    @property
    def running(self) -> bool:
        """Whether it answers."""
        try:
            if self.role == "master":
                ask(self.http, "Admin/Status", pb.StatusRequest(), pb.StatusReply, _ASK_SECONDS, self.credentials)
            else:
                worker_status(self.http, _ASK_SECONDS, self.credentials)
        except HoldfastError:
            return False
        return True

    def start(self, wait: bool = True) -> None:
        """Run the command that starts it; with `wait`, return once it answers. Raises StartError."""
        self._run("start")
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds: float = _START_SECONDS_MAX) -> dict[str, Any]:
        """Wait until it answers. Raises StartError."""
        if not wait_until(lambda: self.running, seconds):
            raise StartError(f"{self.role} {self.name} does not answer at {self.http} after {seconds:g} s")
        return {}

    def kill(self, signal: int = signals.SIGKILL) -> None:
        """Run the command that sends a signal. A supervisor may start what was killed again by itself."""
        self._run("kill", signal)

    def stop(self, seconds: float = _COMMAND_SECONDS_MAX) -> int | None:
        """Run the command that ends it in order, and wait for that; how it ended is not known here."""
        self._run("stop")
        return None

    def end(self) -> int | None:
        """The same."""
        return self.stop()

    def log_tail(self) -> str:
        """The output of the command for its log; "" without one."""
        return self._run("log") if "log" in self._commands else ""

    def _words(self, what: str, signal: int) -> list[str]:
        given = {**self._fields, "signal": signals.Signals(signal).name.removeprefix("SIG")}
        try:
            return [word.format_map(given) for word in shlex.split(self._commands[what])]
        except (KeyError, ValueError, IndexError) as error:
            raise ConfigError(
                f"{self.config}: the command {what} of {self.name} cannot be used: {error!r} is unknown; "
                f"known are {', '.join(sorted(given))}"
            ) from None

    def _run(self, what: str, signal: int = signals.SIGKILL) -> str:
        words = self._words(what, signal)
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_SECONDS_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HoldfastError(f"{what} {self.name}: {shlex.join(words)}: {error}") from error
        if done.returncode:
            text = done.stderr.decode(errors="replace").strip()[-500:]
            raise HoldfastError(f"{what} {self.name}: {shlex.join(words)} ended with {done.returncode}: {text}")
        return done.stdout.decode(errors="replace").strip()


#: Nobody starts processes for servers elsewhere.
_NOBODY = ThreadPoolExecutor(1, thread_name_prefix="holdfast-nobody")


def staging_cluster(file: Path) -> LocalCluster:
    """Handles on the servers of an inventory; nothing is asked of them yet. A secured cluster is shown what
    HOLDFAST_CA and HOLDFAST_TOKEN_FILE name. Raises ConfigError."""
    try:
        text = read_small_text(file, "the inventory")
        tables = _of_ansible(read_json(text.encode())) if file.suffix == ".json" else read_toml(text)
    except ValueError as error:
        raise ConfigError(f"{file}: no inventory: {error}; docs/operate/drills.md has an example") from error
    known = {"masters", "workers", *_COMMANDS, *_OPTIONAL}
    if strange := tables.keys() - known:
        raise ConfigError(
            f"{file}: {', '.join(sorted(strange))} means nothing here; known are {', '.join(sorted(known))}"
        )
    masters, workers = (_servers(tables, role, file) for role in ("master", "worker"))
    if not masters or not workers:
        raise ConfigError(f"{file}: names {len(masters)} masters and {len(workers)} workers: both are needed")
    credentials = Credentials.from_environment()
    if credentials is not None and credentials.bearer[0] != TokenKind.ADMIN:
        raise ConfigError(f"drills change the cluster: {TOKEN_VARIABLE} has to name a token of kind admin")
    return LocalCluster(file.parent, masters, workers, credentials)


def check_reachable(cluster: LocalCluster) -> None:
    """Raise HoldfastError where no master answers, before anything is killed: that would be no broken promise."""
    causes = []
    for master in cluster.masters:
        try:
            ask(master.address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, _ASK_SECONDS, cluster.credentials)
            return
        except HoldfastError as error:
            causes.append(f"{master.name}: {error}")
    more = "" if cluster.credentials else f"; for a secured cluster set {CA_VARIABLE} and {TOKEN_VARIABLE}"
    raise HoldfastError(f"no master of {cluster.endpoints} answers, and nothing was killed: {'; '.join(causes)}{more}")


def _servers(tables: Mapping[str, Any], role: str, file: Path) -> list[Server]:
    found: list[Server] = []
    listed = tables.get(f"{role}s", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ConfigError(f"{file}: {role}s are tables, each written as [[{role}s]]")
    for each in listed:
        given = {key: str(value) for key, value in each.items()}
        commands = {what: given.pop(what, "") or str(tables.get(what, "")) for what in (*_COMMANDS, *_OPTIONAL)}
        named = given.get("name", f"number {len(found) + 1}")
        if missing := [key for key in _WANTED[role] if not given.get(key)]:
            raise ConfigError(f"{file}: {role} {named} has no {' and no '.join(missing)}")
        if missing := [what for what in _COMMANDS if not commands[what]]:
            raise ConfigError(f"{file}: nothing says how to {' or '.join(missing)} {role} {named}")
        found.append(RemoteServer(role, given, {what: how for what, how in commands.items() if how}, file))
    return found


def _of_ansible(document: Any) -> dict[str, Any]:
    """The same tables, from what `ansible-inventory --list` prints."""
    if not isinstance(document, dict):
        raise ConfigError("a JSON inventory is what `ansible-inventory --list` prints: one object")
    variables = document.get("_meta", {}).get("hostvars", {})
    tables: dict[str, Any] = {}
    for group in ("masters", "workers"):
        tables[group] = [_of_host(host, variables.get(host, {})) for host in _hosts(document, group, set())]
    return tables


def _hosts(document: Mapping[str, Any], group: str, seen: set[str]) -> list[str]:
    if group in seen:
        return []
    seen.add(group)
    text = document.get(group, {})
    below = [host for child in text.get("children", []) for host in _hosts(document, child, seen)]
    return [*text.get("hosts", []), *below]


def _of_host(host: str, variables: Mapping[str, Any]) -> dict[str, str]:
    own = {key.removeprefix("holdfast_"): value for key, value in variables.items() if key.startswith("holdfast_")}
    plain = {key: str(value) for key, value in own.items() if isinstance(value, str | int)}
    return {"name": host, "host": str(variables.get("ansible_host", host)), **plain}
