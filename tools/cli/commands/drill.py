"""`holdfast drill NAME`: the drills, each against a cluster of its own, some against a staging cluster as well."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.config.config import PEERS_MAX
from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.limits import COPIES_MAX, MIB
from holdfast.tools.cli.output import PATH, FiniteRange, ask_first, json_option, show, state_option

if TYPE_CHECKING:
    from holdfast.tools.drills.failure_domain import FailureDomain
    from holdfast.tools.drills.running import Drill, Ground
    from holdfast.tools.drills.support.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that all drills have."""

    count: int
    seed: int
    directory: Path | None
    html: Path | None
    as_json: bool
    inventory: Path | None
    yes: bool


_OPTIONS = (
    click.option(
        "--seed",
        type=int,
        default=lambda: random.SystemRandom().getrandbits(32),
        help="Repeats the random choices of an earlier drill.",
    ),
    state_option,
    click.option("--html", type=PATH, help="Write the report to this file, too."),
    click.option(
        "--inventory",
        type=PATH,
        help="Run against this file's staging cluster (docs/operate/drills.md): only drills that kill, stop and start.",
    ),
    click.option(
        "--yes",
        is_flag=True,
        help="Do not ask before servers are killed (--inventory) or a file is replaced.",
    ),
    json_option,
)


def _options(count: int, rounds: str = "Rounds to run.") -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The options of all drills; the command gets them as its first argument."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def run(**given: Any) -> int:
            asked = Asked(**{each.name: given.pop(each.name) for each in fields(Asked)})
            if asked.html is not None:
                _check_page(asked.html, asked)
            return command(asked, **given)

        for option in reversed(_OPTIONS):
            run = option(run)
        return click.option("--count", default=count, show_default=True, type=click.IntRange(min=1), help=rounds)(run)

    return decorate


@click.group()
def drill() -> None:
    """Kill servers on purpose and check that nothing is forgotten. Exit 1 if a promise was broken."""


_masters = click.option(
    "--masters",
    "number",
    type=click.IntRange(3, PEERS_MAX),
    help="How many masters the embedded cluster has: 3 or 5. Default: 3.",
)


@drill.command()
@_masters
@click.option("--stop", is_flag=True, help="Stop the leader (SIGSTOP) and continue it, instead of killing it.")
@_options(20)
def leader(asked: Asked, number: int | None, stop: bool) -> int:
    """Kill the leading master; time until the next command is accepted. With --stop: no stale answer afterwards."""
    from holdfast.tools.drills.leader import drill_kill, drill_stop

    return _run_masters(asked, "leader --stop" if stop else "leader", drill_stop if stop else drill_kill, number)


@drill.command()
@_masters
@_options(20)
def masters(asked: Asked, number: int | None) -> int:
    """Kill all masters at once, under concurrent commands: all acknowledged ones present, none applied twice."""
    from holdfast.tools.drills.masters import drill

    return _run_masters(asked, "masters", drill, number)


@drill.command()
@_options(20)
def worker(asked: Asked) -> int:
    """Kill a worker during writes, seals and reads: acknowledged seals read back, the rest is complete or refused."""
    from holdfast.tools.drills.worker import drill

    return _run(asked, "worker", drill, staging=True)


def _copies(default: int, least: int = 1) -> Callable[[Callable[..., int]], Callable[..., int]]:
    help_text = "Copies of every partition."
    return click.option(
        "--copies", default=default, show_default=True, type=click.IntRange(least, COPIES_MAX), help=help_text
    )


@drill.command()
@_copies(2)
@click.option(
    "--ack",
    default="written",
    show_default=True,
    type=click.Choice([each.name.lower() for each in Ack]),
    help="How safe a batch is when it is acknowledged. From memory, with one copy, data may be lost: by name.",
)
@click.option(
    "--ack-copies",
    type=click.IntRange(1, COPIES_MAX),
    help="How many copies hold a batch before it is acknowledged. Default: all.",
)
@_options(20)
def push(asked: Asked, copies: int, ack: str, ack_copies: int | None) -> int:
    """Kill workers while maps push, commit and readers read: every record once, no map runs again."""
    from holdfast.tools.drills.push import drill, workers
    from holdfast.tools.drills.running import Ground

    if ack_copies is not None and ack_copies > copies:
        raise click.BadParameter(f"{copies} copies are fewer", param_hint="--ack-copies")
    name = f"push --copies {copies} --ack {ack}" + (f" --ack-copies {ack_copies}" if ack_copies else "")
    chosen = partial(drill, copies=copies, ack=Ack[ack.upper()], ack_copies=ack_copies)
    return _run(asked, name, chosen, Ground(workers=workers(copies)))


@drill.command()
@_copies(1)
@_options(5, "Times that all are restarted.")
def rolling(asked: Asked, copies: int) -> int:
    """Restart every worker in turn, in order, under load: nothing is lost or runs again, no client gets an error."""
    from holdfast.tools.drills import rolling as module
    from holdfast.tools.drills.running import Ground

    ground = Ground(workers=module.workers(copies))
    return _run(asked, f"rolling --copies {copies}", partial(module.drill, copies=copies), ground, staging=True)


@drill.command()
@_copies(2, least=2)
@_options(10)
def host(asked: Asked, copies: int) -> int:
    """Kill every worker of as many hosts as there are copies but one: nothing is lost, nothing runs again."""
    from holdfast.tools.drills.failure_domain import HOST

    return _run_domain(asked, HOST, copies)


@drill.command()
@_copies(2, least=2)
@_options(10)
def rack(asked: Asked, copies: int) -> int:
    """Kill every worker of as many racks as there are copies but one: nothing is lost, nothing runs again."""
    from holdfast.tools.drills.failure_domain import RACK

    return _run_domain(asked, RACK, copies)


@drill.command()
@_copies(3, least=2)
@_options(10)
def region(asked: Asked, copies: int) -> int:
    """Kill every worker of a region where copies have to be in two: nothing is lost, nothing runs again."""
    from holdfast.tools.drills.failure_domain import REGION

    return _run_domain(asked, REGION, copies)


@drill.command()
@_options(3)
def restored(asked: Asked) -> int:
    """Kill one host after the other, which stay away: their copies are made again, and the last host has everything."""
    from holdfast.tools.drills.restored import GROUND, drill

    return _run(asked, "restored", drill, GROUND)


@drill.command()
@_options(10)
def driver(asked: Asked) -> int:
    """Kill the driver: another one attaches, reads and continues; without one, leases expire and data is deleted."""
    from holdfast.tools.drills import driver as module

    return _run(asked, "driver", module.drill, module.GROUND, staging=True)


@drill.command("disk-full")
@_options(5)
def disk_full(asked: Asked) -> int:
    """Let disks run full while maps push, kill workers that are full: all acknowledged data is read."""
    from holdfast.tools.drills import disk_full as module

    return _run(asked, "disk-full", module.drill, module.GROUND)


@drill.command("disk-slow")
@click.option("--clients", default=64, show_default=True, type=click.IntRange(2, 1024), help="Processes.")
@click.option(
    "--seconds",
    default=30.0,
    show_default=True,
    type=FiniteRange(min=1.0),
    help="How long they push. Starting, sending the rest, sealing and reading back take extra time: at "
    "20 MB/s that is about 25 s with 64 clients.",
)
@click.option(
    "--memory", default=256, show_default=True, type=click.IntRange(min=64), help="The worker's budget in MiB."
)
@_options(1)
def disk_slow(asked: Asked, clients: int, seconds: float, memory: int) -> int:
    """Let many clients push at full speed at a disk of 20 MB/s: bounded memory, no client starves, nothing is lost."""
    from holdfast.tools.drills import disk_slow as module
    from holdfast.tools.drills.running import Ground

    run = partial(module.drill, clients=clients, seconds=seconds, memory=memory * MIB)
    name = f"disk-slow --clients {clients} --seconds {seconds:g} --memory {memory}"
    return _run(asked, name, run, Ground(settings=module.settings(memory * MIB)))


@drill.command("bit-flip")
@_options(20)
def bit_flip(asked: Asked) -> int:
    """Flip bytes in data and index files: each read is right, or with one copy an error that names the place."""
    from holdfast.tools.drills import bit_flip as module

    return _run(asked, "bit-flip", module.drill, module.GROUND)


@drill.command()
@_options(10)
def partition(asked: Asked) -> int:
    """Cut the network between masters and workers: a leader without a majority answers nothing, nothing is lost."""
    from holdfast.tools.drills import partition as module

    return _run(asked, "partition", *module.ground())


@drill.command("clock-skew")
@_options(10)
def clock_skew(asked: Asked) -> int:
    """Have the clocks of masters differ and jump while leaders are killed: no lease ends early, nothing is deleted."""
    from holdfast.tools.drills import clock_skew as module

    return _run(asked, "clock-skew", module.drill, module.ground(asked.seed))


@drill.command()
@click.option(
    "--kill",
    "killed",
    default="reuse",
    show_default=True,
    type=click.Choice(["reuse", "leader", "worker", "host", "rack", "rolling", "executors"]),
    help="What is killed: workers, masters and both between reads of one shuffle; or, while queries run, the leading "
    "master, a worker, all workers of as many hosts or racks as there are copies but one, or executors of "
    "local-cluster[2,1,1024]. rolling: workers are restarted in order, in turn.",
)
@_copies(1)
@click.option(
    "--every",
    default=None,
    type=FiniteRange(min=0.5),
    help="Seconds from one kill to the next, while queries run. Default: 5, for workers, hosts and racks 10.",
)
@click.option(
    "--spark-master",
    "master",
    default=None,
    metavar="URL",
    help="Run the executors in this Spark cluster: spark://HOST:PORT, or yarn. Its hosts must reach this machine's "
    "servers; executors on this machine are killed.",
)
@_options(20)
def spark(asked: Asked, killed: str, copies: int, every: float | None, master: str | None) -> int:
    """Kill servers or executors under a Spark job with the plug-in: equal answers, nothing computed twice."""
    from holdfast.tools.drills.spark import drill as module
    from holdfast.tools.drills.spark.driver import check_installed

    check_installed()
    chosen = module.Killed(killed)
    run = partial(module.drill, killed=chosen, copies=copies, every=every, master=master)
    name = f"spark --kill {killed} --copies {copies}" + (f" --every {every:g}" if every else "")
    name += f" --spark-master {master}" if master else ""
    return _run(asked, name, run, module.ground(chosen, copies))


@drill.command("all")
@click.option("--only", multiple=True, metavar="NAME", help="Only this drill; may be given more than once.")
@_options(1, "How often all of them are run, each with a seed of its own.")
def all_drills(asked: Asked, only: tuple[str, ...]) -> int:
    """Run the short form of every drill, again and again. Exit 1 if any promise was broken."""
    from holdfast.tools.drills.catalogue import run_all

    if asked.inventory:
        raise ConfigError("`drill all` runs in embedded clusters: give --inventory to one drill at a time")
    return _tell(asked, run_all(asked.count, asked.seed, asked.directory, only, partial(_write, asked)))


def _run_masters(asked: Asked, name: str, drill: Drill, number: int | None) -> int:
    from holdfast.tools.drills.running import Ground

    if number is None:
        return _run(asked, name, drill, staging=True)
    if asked.inventory is not None:
        raise ConfigError("--masters is for the embedded cluster: leave it out, or --inventory")
    return _run(asked, f"{name} --masters {number}", drill, Ground(masters=number), staging=True)


def _run_domain(asked: Asked, domain: FailureDomain, copies: int) -> int:
    from holdfast.tools.drills.failure_domain import drill

    name, chosen = f"{domain.word} --copies {copies}", partial(drill, domain=domain, copies=copies)
    return _run(asked, name, chosen, domain.ground(copies), staging=True)


def _run(asked: Asked, name: str, drill: Drill, ground: Ground | None = None, *, staging: bool = False) -> int:
    from holdfast.tools.drills.running import run_drill

    if asked.inventory is None:
        report = run_drill(name, drill, asked.count, asked.seed, asked.directory, ground)
    else:
        report = _run_staging(asked, asked.inventory, name, drill, staging)
    more = f" --inventory {asked.inventory}" if asked.inventory else ""
    report.repeat = f"holdfast drill {name} --count {asked.count} --seed {asked.seed}{more}"
    return _tell(asked, [report])


def _run_staging(asked: Asked, file: Path, name: str, drill: Drill, staging: bool) -> Report:
    from holdfast.tools.drills.running import run_on
    from holdfast.tools.drills.support.staging import check_reachable, staging_cluster

    short = name.partition(" ")[0]
    if not staging:
        raise ConfigError(
            f"drill {short} needs more than killing, stopping and starting servers, so it runs in an embedded cluster "
            "only: leave --inventory out"
        )
    if asked.directory is not None:
        raise ConfigError("--dir is for the embedded cluster: leave it out, or --inventory")
    cluster = staging_cluster(file)
    check_reachable(cluster)
    kills = f"drill {short} kills servers of {cluster.endpoints} (masters) and its {len(cluster.workers)} workers"
    ask_first(kills, asked.yes, asked.as_json)
    report = run_on(cluster, name, drill, asked.count, asked.seed)
    report.against = f"the cluster of {file}"
    return report


def _tell(asked: Asked, reports: list[Report]) -> int:
    """Show the reports, then write the page: the results are shown even if that fails."""
    from holdfast.tools.drills.support.page import write

    good = all(report.good for report in reports)
    if len(reports) == 1:
        (report,) = reports
        show(report.document(), asked.as_json, report.draw)
    else:
        from holdfast.tools.drills.catalogue import draw_all

        document = {"good": good, "drills": [report.document() for report in reports]}
        show(document, asked.as_json, lambda screen: draw_all(screen, reports))
    if asked.html is not None:
        write(asked.html, reports)
    return 0 if good else 1


def _write(asked: Asked, reports: list[Report]) -> None:
    """Write the page of what there is, if one is wanted; the drills go on without it."""
    from holdfast.tools.drills.support.page import write

    if asked.html is not None:
        try:
            write(asked.html, reports)
        except HoldfastError as error:
            click.echo(f"holdfast: {error}", err=True)


def _check_page(file: Path, asked: Asked) -> None:
    """Raise ConfigError now for what could not be written after hours, and ask whether a report is to be replaced."""
    if not file.parent.is_dir():
        raise ConfigError(f"there is no directory {file.parent} for --html {file}: make it, or name another file")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"--html {file} cannot be written: name a file in a directory where you may write")
    if file.is_file():
        ask_first(f"this replaces {file}", asked.yes, asked.as_json)
