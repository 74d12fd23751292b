"""`holdfast doctor`: checks a host, before and after installation, and shows problems and what to do.

Rules: it changes nothing; files that it writes to measure a disk have no name and are freed at once, and a support
bundle is written where it is asked for. What is gathered
is in tools/doctor, what is made of it in tools/doctor/core.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.config import config as configuration
from holdfast.common.config.config import Config
from holdfast.common.errors import ConfigError
from holdfast.common.security.credentials import CA_VARIABLE, TOKEN_VARIABLE
from holdfast.common.sizes import counted, in_bytes
from holdfast.tools.cli.output import PATH, ask_first, escape, json_option, masters_if_any_option, show, yes_option

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.common.security.credentials import Credentials
    from holdfast.tools.doctor.core.facts import Cluster, Host, PortFact, WorkerHere
    from holdfast.tools.doctor.core.findings import Symptom

_LOOPBACK = ("localhost", "127.", "[::1]")


@click.command()
@click.option(
    "--config",
    "files",
    type=PATH,
    multiple=True,
    help="The TOML file of the master or worker on this host; again for each further one.",
)
@masters_if_any_option
@click.option("--spark-conf", type=PATH, help="Settings of Spark, such as spark-defaults.conf.")
@click.option("--user", help="The user that servers will run as; only root may name another.")
@click.option(
    "--bundle",
    type=PATH,
    metavar="FILE.tar.gz",
    help="Write a support bundle, without secrets: what the doctor finds, and what helps to find the rest.",
)
@click.option(
    "--log", "logs", type=PATH, multiple=True, help="With --bundle: a log file to add the end of; again for more."
)
@yes_option
@json_option
def doctor(
    files: tuple[Path, ...],
    masters: str | None,
    spark_conf: Path | None,
    user: str | None,
    bundle: Path | None,
    logs: tuple[Path, ...],
    yes: bool,
    as_json: bool,
) -> int:
    """Find problems on this host, and show what to do. Exit 1 if there is a problem; advice alone is 0.

    Run it before and after installation: with --config it checks a server's ports, names, directories and limits,
    with --masters the cluster as seen from this host, with --spark-conf Spark's settings, Java and Pythons. With
    --bundle it exits 0 when the file is written, whatever was found.
    """
    if bundle is not None:
        return _write_bundle(bundle, files, masters, spark_conf, user, logs, yes, as_json)
    if logs:
        raise ConfigError("--log is for a support bundle: give --bundle FILE.tar.gz as well")
    servers = [(file, _load(file)) for file in files]
    if user:
        _become(user)
    file, config = servers[0] if servers else (None, None)
    endpoints = _endpoints(config, masters, spark_conf)
    patient = Patient(config, endpoints, bool(masters), spark_conf, file, tuple(servers[1:]))
    findings = list(patient.examine())
    findings.sort(key=lambda each: each.level != "problem")
    problems = sum(each.level == "problem" for each in findings)
    document = {
        "findings": [asdict(each) for each in findings],
        "looked_at": patient.looked_at,
        "not_looked_at": patient.not_looked_at,
        "problems": problems,
        "advice": len(findings) - problems,
        "healthy": not problems,
    }
    show(document, as_json, lambda screen: _draw(document, screen))
    return 1 if problems else 0


def _write_bundle(
    target: Path,
    files: tuple[Path, ...],
    masters: str | None,
    spark_conf: Path | None,
    user: str | None,
    logs: tuple[Path, ...],
    yes: bool,
    as_json: bool,
) -> int:
    from holdfast.common.system.files import write_whole
    from holdfast.common.system.modes import FILE_MODE
    from holdfast.tools.doctor.bundle import BundleRequest, make_bundle

    if not target.parent.is_dir():
        raise ConfigError(f"there is no directory {target.parent} for {target.name}: make it, or name another")
    there = target.exists() and target.stat().st_size > 0
    if there:
        ask_first(f"{target} is there already, and is replaced", yes, as_json)
    endpoints = _endpoints_if_any(files, masters, spark_conf)
    words = ("--user", user) if user else ()
    made = make_bundle(BundleRequest(files, ",".join(endpoints), spark_conf, logs, words))
    data = made.finish()
    try:
        write_whole(target, data, FILE_MODE, new=not there)
    except FileExistsError as error:
        raise ConfigError(f"{target} {error.strerror}: name another file") from None
    document = {"bundle": str(target), "bytes": len(data), **made.contents()}
    show(document, as_json, lambda screen: _draw_bundle(document, screen))
    return 0


def _endpoints_if_any(files: tuple[Path, ...], masters: str | None, spark_conf: Path | None) -> list[str]:
    """The masters to ask; a file that is refused names none, and the bundle has the reason."""
    for file in files:
        try:
            return _endpoints(_load(file), masters, spark_conf)
        except ConfigError:
            continue
    return _endpoints(None, masters, spark_conf)


def _draw_bundle(document: dict[str, Any], screen: Console) -> None:
    for each in document["files"]:
        causes = ", ".join(f"{cause} ({count})" for cause, count in each["removed"].items())
        removed = f"; removed: {causes}" if causes else ""
        screen.print(f"{escape(each['name'])}: {in_bytes(each['bytes'])}{escape(removed)}", soft_wrap=True)
    for each in document["missing"]:
        screen.print(f"[yellow]missing[/]: {escape(each['name'])}: {escape(each['error'])}", soft_wrap=True)
    text = f"{document['bundle']} has {counted(len(document['files']), 'file')}, {in_bytes(document['bytes'])}"
    screen.print(
        escape(f"{text}; read it before you send it: names of hosts, users and applications are in it"), soft_wrap=True
    )


def _load(file: Path) -> Config:
    from holdfast.common.system.files import read_small_text

    config = configuration.parse(read_small_text(file, "the configuration"), os.environ, str(file))
    if not (config.master.peers or config.master.directory or config.worker.directories or config.worker.masters):
        raise ConfigError(
            f"{file} sets up neither a master nor a worker; docs/operate/deployment.md has a file of each"
        )
    return config


def _become(user: str) -> None:
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"there is no user {user} on this host: create it first, or omit --user") from None
    if found.pw_uid == os.geteuid():
        return
    if os.geteuid() != 0:
        raise ConfigError(f"only root can check as {user}: run this with sudo, or as {user} without --user")
    os.initgroups(user, found.pw_gid)
    os.setgid(found.pw_gid)
    os.setuid(found.pw_uid)
    for path in (os.__file__, __file__):
        if not os.access(path, os.R_OK):
            raise ConfigError(
                f"{user} may not read {path}: install Python and Holdfast where that user can, as in /opt"
            )
    leave_unreadable_token()


def leave_unreadable_token() -> None:
    """Have the credentials of a file shown where this user may not read those that the environment names."""
    if not os.access(os.environ.get(TOKEN_VARIABLE, ""), os.R_OK):
        os.environ.pop(TOKEN_VARIABLE, None)
        os.environ.pop(CA_VARIABLE, None)


def _endpoints(config: Config | None, masters: str | None, spark_conf: Path | None) -> list[str]:
    """The masters to ask: from the option, else from a file."""
    from holdfast.common.net.endpoints import parse_endpoints

    if masters:
        return list(parse_endpoints(masters))
    if config is not None:
        return [str(each) for each in config.worker.masters] or [str(peer.http) for peer in config.master.peers]
    if spark_conf is not None and spark_conf.is_file():
        from holdfast.common.system.files import read_small
        from holdfast.tools.doctor.core.spark import parse_settings

        return _named(parse_settings(read_small(spark_conf, "Spark's settings").decode("utf-8", "replace")))
    return []


def _named(settings: Mapping[str, str]) -> list[str]:
    """The masters that Spark's settings name."""
    from holdfast.common.net.endpoints import parse_endpoints
    from holdfast.tools.doctor.core.spark import PREFIX

    try:
        return list(parse_endpoints(settings.get(f"{PREFIX}master.endpoints", "")))
    except ConfigError:
        return []  # check_spark reports it


@dataclass(slots=True)
class Patient:
    """What is looked at, and what was not, with the reason."""

    config: Config | None
    endpoints: list[str]
    expected: bool
    spark_conf: Path | None
    #: path of `config`, by which a server that runs from it is recognised
    file: Path | None = None
    #: files of further servers of this host
    more: tuple[tuple[Path, Config], ...] = ()
    looked_at: list[str] = field(default_factory=list)
    not_looked_at: dict[str, str] = field(default_factory=dict)
    _here: list[WorkerHere] = field(default_factory=list)
    _job_useless: bool = False

    def examine(self) -> Iterator[Symptom]:
        """Gather and judge, one part after the other."""
        from holdfast.tools.doctor.core.workers import check_workers_here

        host = yield from self._host()
        yield from self._security(host.name)
        job = None
        if self.spark_conf is not None:
            job = yield from self._job(self.spark_conf)
        cluster = None
        if self.endpoints:
            cluster = yield from self._cluster(job)
        else:
            self._skip(("masters", "workers", "versions"), "give --masters, or set HOLDFAST_MASTERS")
        self._listed_here(cluster, host)
        yield from check_workers_here(host, self._here)
        if self.spark_conf is None:
            self._skip(("Spark",), "give --spark-conf FILE, such as spark-defaults.conf")
            return
        from holdfast.tools.doctor.core.spark import check_spark
        from holdfast.tools.doctor.spark import gather_spark

        self._look("Spark")
        yield from check_spark(gather_spark(self.spark_conf), cluster)

    def _host(self) -> Any:
        """Yields findings of this host and of the servers of all files; returns the Host."""
        from holdfast.tools.doctor import host as gather
        from holdfast.tools.doctor.core import host as judge

        host: Host = gather.gather_host()
        if self.config is None:
            self._skip(("ports", "names", "directories"), "give --config FILE, a server's file")
            self._look("this host")
            yield from judge.check_host(host, None)
            return host
        ports: list[PortFact] = []
        self._look("this host", "ports", "names", "directories")
        for file, config in [(self.file, self.config), *self.more]:
            found, pid = gather.gather_ports(config, file)
            host = gather.gather_host(pid)
            of = f"{file}: " if self.more else ""
            ports += [replace(each, setting=f"{of}{each.setting}") for each in found]
            own = [
                *judge.check_host(host, config),
                *judge.check_names(config, host, gather.gather_names(config, host)),
                *self._directories(config),
            ]
            yield from (replace(each, where=f"{of}{each.where}") for each in own)
        yield from judge.check_ports(ports, host.outgoing)
        return host

    def _listed_here(self, cluster: Cluster | None, host: Host) -> None:
        """Take in the workers of this host that the masters list, and that no file is of."""
        from holdfast.common.system.machine import this_machine
        from holdfast.common.worker_states import AWAY
        from holdfast.tools.doctor.core.facts import WorkerHere
        from holdfast.tools.doctor.disks import device_of

        name = (self.config.worker.host if self.config is not None else "") or host.name
        machine, known = this_machine(), {each.name for each in self._here}
        for each in cluster.workers if cluster is not None else ():
            here = each.host == name or (machine and each.machine_id == machine)
            if here and each.state not in AWAY and each.name not in known:
                disks = tuple((path, device_of(path)) for path in each.disks)
                self._here.append(WorkerHere(name=each.name, disks=disks))

    def _directories(self, config: Config) -> Iterator[Symptom]:
        from holdfast.tools.doctor import disks
        from holdfast.tools.doctor.core import cluster as judge
        from holdfast.tools.doctor.core.directories import check_directories, check_shared
        from holdfast.tools.doctor.core.facts import WorkerHere
        from holdfast.tools.doctor.core.host import worker_memory

        yield from judge.check_roles(config)
        loopback = all(str(peer.raft).startswith(_LOOPBACK) for peer in config.master.peers)
        yield from judge.check_secret(config, disks.gather_secret(config), loopback)
        yield from check_shared(disks.shared_paths(config))
        found = disks.gather_directories(config)
        yield from check_directories(config, found)
        if config.worker.directories:
            on_disks = tuple((each.path, each.device) for each in found if each.tier not in ("", "MEMORY"))
            name, memory = config.worker.name, worker_memory(config)
            self._here.append(WorkerHere(name=name, memory_bytes=memory, disks=on_disks))

    def _security(self, this_host: str) -> Iterator[Symptom]:
        from holdfast.tools.doctor import certificates
        from holdfast.tools.doctor.core.security import advertised_names, check_security, check_token

        if self.config is not None:
            names = advertised_names(self.config, this_host)
            yield from check_security(self.config, certificates.gather_certificate(self.config, names), time.time())
        yield from check_token(certificates.gather_token(), time.time())
        self._look("security")

    def _job(self, file: Path) -> Any:
        """Yields findings; returns what a job shows, None where that is of no use."""
        from holdfast.tools.doctor.asking import try_job
        from holdfast.tools.doctor.core.security import check_job
        from holdfast.tools.doctor.job import gather_job
        from holdfast.tools.doctor.spark import read_settings

        settings = read_settings(file)
        found, job = gather_job(settings)
        if found is None:
            return None
        if os.geteuid() == 0:
            text = "root reads everything; give --user, the user of the jobs"
            self._skip(("whether jobs may read CA and token",), text)
        masters = _named(settings)
        if job is not None and masters:
            found = try_job(masters, job, found)
        takes = [each.address for each in found.welcomes if each.let_in]
        if takes:
            self._look(f"CA and token of the settings, which {takes[0]} takes")
        else:
            self._skip(("whether masters take CA and token of the settings",), "no master was shown them and took them")
        yield from check_job(found, file.name, time.time())
        self._job_useless = job is None or any(
            each.secret_refused or each.certificate_refused or each.only_file_tls for each in found.welcomes
        )
        return None if self._job_useless else job

    def _cluster(self, job: Credentials | None) -> Any:
        """Yields findings; returns the Cluster."""
        from holdfast.common.system.versions import versions
        from holdfast.tools.doctor import asking, disks
        from holdfast.tools.doctor.core import cluster as judge
        from holdfast.worker.storage.names import FORMAT

        if self._job_useless and asking.credentials_of(self.config) is None:
            text = "CA and token of the settings are of no use, and HOLDFAST_CA and HOLDFAST_TOKEN_FILE name no others"
            self._skip(("masters", "workers", "versions"), text)
            return None
        found: Cluster = asking.gather_cluster(self.endpoints, self.config, self.expected, job)
        self._look("masters")
        secret = disks.gather_secret(self.config) if self.config is not None else None
        yield from judge.check_masters(found, self.config, secret)
        if self.config is not None:
            yield from judge.check_welcome(asking.gather_welcomes(self.config), self.config)
        if found.seen_as and any(not each.error for each in found.masters):
            text = f"a token of kind {found.seen_as} does not show them; set HOLDFAST_CA, and HOLDFAST_TOKEN_FILE to a "
            self._skip(("clocks, settings and formats of servers", "HTTP ports of workers"), f"{text}viewer's")
        if any(not each.error for each in found.masters):
            self._look("workers", "versions")
            yield from judge.check_workers(found, self.config)
            yield from judge.check_versions(found, {**versions(), "disk": str(FORMAT)})
        else:
            self._skip(("workers", "versions"), "no master answers")
        return found

    def _look(self, *what: str) -> None:
        self.looked_at += what

    def _skip(self, what: tuple[str, ...], reason: str) -> None:
        self.not_looked_at.update(dict.fromkeys(what, reason))


def _draw(document: dict[str, Any], screen: Console) -> None:
    for each in document["findings"]:
        colour = "bold red" if each["level"] == "problem" else "yellow"
        text = f"[{colour}]{each['level']}[/] {each['code']}: {escape(each['where'])} {escape(each['what'])}"
        screen.print(text, soft_wrap=True)
        screen.print(f"        {escape(each['remedy'])}", soft_wrap=True)
    screen.print(f"looked at {', '.join(document['looked_at'])}", soft_wrap=True)
    for skipped in dict.fromkeys(document["not_looked_at"].values()):
        left = [what for what, reason in document["not_looked_at"].items() if reason == skipped]
        screen.print(f"not at {', '.join(left)}: {skipped}", soft_wrap=True)
    if document["findings"]:
        text = counted(document["problems"], "problem")
        screen.print(f"{text}, {document['advice']} of advice")
    else:
        screen.print("nothing is wrong as far as was looked")
