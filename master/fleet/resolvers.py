"""Where a host is: resolvers, and the cache before them.

Rules: a resolver answers for each host by itself, None for an unknown one; it never raises for a host (B8: one
host that cannot be resolved says nothing of the others). `Places` keeps what was found, gives the default place to the
rest, and counts them. Nothing that failed is kept. Resolvers may take long: they are called in a thread.

Source: the DNS-to-switch mappings of Hadoop and Apache BookKeeper; the host name pattern of DistributedLog.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from holdfast.common.config.placement import PlacementSection
from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.master.fleet.installed import make_installed
from holdfast.master.placement.topology import DEFAULT_PLACE, check_place

#: Hosts in one call of a script, and its time.
SCRIPT_HOSTS_MAX = 100
SCRIPT_SECONDS_MAX = 10.0
#: Of its answer, which a pipe has to hold.
SCRIPT_BYTES_MAX = 1 << 20
#: Where classes of users register themselves.
ENTRY_POINT_GROUP = "holdfast.resolvers"


class Resolver(Protocol):
    """Says where hosts are."""

    def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
        """Return a place for each host, None where it is not known."""

    def reload(self) -> None:
        """Read its source again, if it has one. Raises ConfigError, and continues with the old content."""
        return


class StaticResolver(Resolver):
    """Resolves nothing: workers keep the places that they report, or the default place."""

    def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
        """None for all."""
        return [None] * len(hosts)


class TableResolver(Resolver):
    """A file with a host and a place in each line; `#` begins a comment."""

    def __init__(self, path: Path, default: str = DEFAULT_PLACE) -> None:
        """Places have as many parts as `default`. Raises ConfigError."""
        self._path = path
        self._default, self._depth = default, default.count("/")
        self._places: Mapping[str, str] = {}
        self.reload()

    def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
        """What the file says."""
        return [self._places.get(host) for host in hosts]

    def reload(self) -> None:
        """Read the file again. Raises ConfigError, which names the line, and continues with the old content."""
        try:
            text = self._path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the table of places {self._path} cannot be read: {error}") from None
        places: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2:
                raise ConfigError(f"{self._path} line {number} needs a host and a place, such as `h1 {DEFAULT_PLACE}`")
            try:
                place = check_place(words[1])
            except ConfigError as error:
                raise ConfigError(f"{self._path} line {number}: {error}") from None
            if place.count("/") != self._depth:
                raise ConfigError(f"{self._path} line {number}: {place} has another depth than {self._default}")
            if places.setdefault(words[0], place) != place:
                raise ConfigError(f"{self._path} line {number}: {words[0]} has another place above")
        self._places = places


class ScriptResolver(Resolver):
    """A program that is called with hosts and prints a place for each, separated by white space."""

    def __init__(self, path: str, hosts_max: int = SCRIPT_HOSTS_MAX, seconds_max: float = SCRIPT_SECONDS_MAX) -> None:
        """The script is called once, without hosts, and must end with 0. Raises ConfigError."""
        found = shutil.which(path) if path else None
        if found is None:
            raise ConfigError(
                f"the script of places {path!r} is no program that can be run: name one by its whole path"
            )
        if hosts_max < 1:
            raise ConfigError(f"a script of places is called with at least 1 host, not {hosts_max}")
        self._path, self._hosts_max, self._seconds_max = os.path.realpath(found), hosts_max, seconds_max
        if isinstance(answer := self._call([]), str):
            raise ConfigError(f"the script of places {self._path} {answer}: called without hosts it must end with 0")

    def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
        """Call the script as often as it takes; a call that fails says nothing of its hosts."""
        # A host is data: one that begins with a dash would be an option, and no argument has a NUL.
        sane = [host for host in hosts if host and not host.startswith("-") and "\0" not in host]
        answers = dict(zip(sane, self._ask(sane), strict=True))
        return [answers.get(host) for host in hosts]

    def _ask(self, hosts: Sequence[str]) -> list[str | None]:
        found: list[str | None] = []
        for at in range(0, len(hosts), self._hosts_max):
            some = hosts[at : at + self._hosts_max]
            answer = self._call(some)
            if not isinstance(answer, str) and len(answer) != len(some):
                answer = f"printed {len(answer)} places for {len(some)} hosts"
            if isinstance(answer, str):
                log_event(LogEvent.PLACE_LOOKUP_FAILED, script=self._path, reason=answer)
                found += [None] * len(some)
            else:
                found += answer
        return found

    def _call(self, hosts: Sequence[str]) -> list[str] | str:
        """What it printed, or why that is not to be used. It prints into a pipe that holds as much as an answer may
        have, and which is read when it has ended: a script that prints more does not end."""
        try:
            process = subprocess.Popen(
                [self._path, *hosts],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if not hosts else subprocess.DEVNULL,
                pipesize=SCRIPT_BYTES_MAX,
                start_new_session=True,  # so that what it started ends with it
            )
        except OSError as error:
            return f"cannot be run: {error.strerror}"
        with process:
            assert process.stdout is not None
            try:
                process.wait(self._seconds_max)
            except subprocess.TimeoutExpired:
                return f"did not end within {self._seconds_max:g} s, or prints more than {SCRIPT_BYTES_MAX} bytes"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            os.set_blocking(process.stdout.fileno(), False)  # what left its session may hold the other end
            said = process.stdout.read() or b""
        text = said.decode(errors="replace")
        if process.returncode:
            last = text.strip().splitlines()
            return f"ended with {process.returncode}" + (f" ({last[-1][:200]})" if last else "")
        return text.split()


class HostnameResolver(Resolver):
    """Reads the place out of the name: `(region)-(rack)-x-y.domain` is /region/rack."""

    _LABEL = re.compile(r"([^-]+)-([^-]+)-[^-]+-[^-]+")

    def __init__(self, overrides: str = "") -> None:
        """`overrides` is `host:region;host:region`, which replaces the region; a host may be named by its first label,
        and the whole name comes first. Raises ConfigError."""
        self._regions: dict[str, str] = {}
        for each in filter(None, overrides.split(";")):
            host, _, region = each.partition(":")
            if not host or not region or "/" in region:
                raise ConfigError(f"overrides of regions are written host:region;host:region, not {overrides!r}")
            if self._regions.setdefault(host, region) != region:
                raise ConfigError(f"overrides of regions name {host} twice")

    def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
        """None for names of another form."""
        return list(map(self._one, hosts))

    def _one(self, host: str) -> str | None:
        label = host.split(".", 1)[0]
        found = self._LABEL.fullmatch(label)
        region = self._regions.get(host) or self._regions.get(label) or (found[1] if found else "")
        if not region:
            return None
        return f"/{region}/{found[2] if found else DEFAULT_PLACE.rsplit('/', 1)[1]}"


def load_resolver(name: str, argument: str) -> Resolver:
    """Make a resolver that a user has installed under this name. Raises ConfigError."""
    resolver: Resolver = make_installed("resolver", ENTRY_POINT_GROUP, name, argument)
    return resolver


#: What a resolver is made of; where none of it has changed the one that is there is asked to read again.
RESOLVER_KEYS = (
    "resolver",
    "resolver_path",
    "resolver_argument",
    "script_hosts",
    "script_timeout",
    "default_place",
)


def make_places(section: PlacementSection) -> Places:
    """Return the resolver that the configuration names, with a cache before it. Raises ConfigError."""
    resolver: Resolver
    if section.resolver == "static":
        resolver = StaticResolver()
    elif section.resolver == "table":
        resolver = TableResolver(Path(section.resolver_path), section.default_place)
    elif section.resolver == "script":
        resolver = ScriptResolver(section.resolver_path, section.script_hosts, section.script_timeout.seconds)
    elif section.resolver == "hostname":
        resolver = HostnameResolver(section.resolver_argument)
    else:
        resolver = load_resolver(section.resolver, section.resolver_argument)
    return Places(resolver, section.default_place)


class Places:
    """What was found, host by host. Any thread."""

    def __init__(self, resolver: Resolver, default: str = DEFAULT_PLACE) -> None:
        self._resolver, self.default = resolver, check_place(default)
        self._found: dict[str, str] = {}
        self._guard = Lock()

    def resolve(self, hosts: Sequence[str]) -> list[str]:
        """Return a place for each host; the default one where none is found. Blocks."""
        with self._guard:
            new = [host for host in dict.fromkeys(hosts) if host not in self._found]
            if new:
                self._found.update(self._ask(new))
            return [self._found.get(host, self.default) for host in hosts]

    def known(self, host: str) -> str | None:
        """The known place, None if it has to be resolved; "" without a resolver. Never blocks."""
        return "" if isinstance(self._resolver, StaticResolver) else self._found.get(host)

    def _ask(self, hosts: Sequence[str]) -> Iterator[tuple[str, str]]:
        answers = self._answers(hosts)
        if answers is None:  # one of them may be to blame for all (B8)
            answers = [(self._answers([host]) or [None])[0] if len(hosts) > 1 else None for host in hosts]
        depth = self.default.count("/")
        for host, answer in zip(hosts, answers, strict=True):
            try:
                place = check_place(answer) if answer else ""
            except ConfigError as error:
                log_event(LogEvent.PLACE_INVALID, host=host, reason=error)
                place = ""
            if place and place.count("/") != depth:
                reason = f"{place} has another depth than the default, {self.default}"
                log_event(LogEvent.PLACE_INVALID, host=host, reason=reason)
                place = ""
            if place:
                yield host, place

    def _answers(self, hosts: Sequence[str]) -> list[str | None] | None:
        """What the resolver says, None if that is of no use."""
        try:
            answers = list(self._resolver.resolve(hosts))
        except Exception as error:  # noqa: BLE001 - it is a user's
            log_event(LogEvent.PLACE_LOOKUP_FAILED, trace=error)
            return None
        return answers if len(answers) == len(hosts) else None

    def forget(self, host: str) -> None:
        """A worker of this host left: a wrong answer is not remembered for ever. Never blocks."""
        self._found.pop(host, None)

    def reload(self) -> None:
        """Forget everything and have the resolver read again. Raises ConfigError; then the old places stay."""
        with self._guard:
            self._resolver.reload()
            self._found.clear()
