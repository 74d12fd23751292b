"""`holdfast drill leader|masters|worker|push|rolling|slow-disk|spark`: the drills, each against its own cluster."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import click

from holdfast.client.cli.drills.report import DrillError, Report
from holdfast.client.cli.output import json_option, progress, show
from holdfast.client.cluster import LocalCluster, Sections, local_cluster
from holdfast.common.errors import HoldfastError
from holdfast.common.limits import MIB
from holdfast.common.messages import Ack

Drill = Callable[[LocalCluster, Report, random.Random, Callable[[str], None]], Coroutine[Any, Any, None]]

_count_option = click.option(
    "--count", default=20, show_default=True, type=click.IntRange(min=1), help="Rounds to run."
)
_seed_option = click.option("--seed", default=None, type=int, help="Repeats the random choices of an earlier drill.")
_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Where state and logs go, kept at the end. Default: a temporary directory, removed at the end.",
)


@click.group()
def drill() -> None:
    """Kill servers on purpose and check that nothing is forgotten. Exit 1 if a promise was broken."""


@drill.command()
@click.option("--stop", is_flag=True, help="Stop the leader (SIGSTOP) and continue it, instead of killing it.")
@_count_option
@_seed_option
@_directory_option
@json_option
def leader(stop: bool, count: int, seed: int | None, directory: Path | None, as_json: bool) -> int:
    """Kill the leading master; time until the next command is accepted. With --stop: no stale answer afterwards."""
    from holdfast.client.cli.drills.leader import drill_kill, drill_stop

    if stop:
        return _run("leader --stop", drill_stop, count, seed, directory, as_json)
    return _run("leader", drill_kill, count, seed, directory, as_json)


@drill.command()
@_count_option
@_seed_option
@_directory_option
@json_option
def masters(count: int, seed: int | None, directory: Path | None, as_json: bool) -> int:
    """Kill all masters at once, under concurrent commands: all acknowledged ones present, none applied twice."""
    from holdfast.client.cli.drills.masters import drill

    return _run("masters", drill, count, seed, directory, as_json)


@drill.command()
@_count_option
@_seed_option
@_directory_option
@json_option
def worker(count: int, seed: int | None, directory: Path | None, as_json: bool) -> int:
    """Kill a worker during writes, seals and reads: acknowledged seals read back, the rest is whole or refused."""
    from holdfast.client.cli.drills.worker import drill

    return _run("worker", drill, count, seed, directory, as_json)


@drill.command()
@click.option("--copies", default=2, show_default=True, type=click.IntRange(1, 2), help="Copies of every partition.")
@click.option(
    "--ack",
    default="written",
    show_default=True,
    type=click.Choice([each.name.lower() for each in Ack]),
    help="How safe a batch is when it is acknowledged. From memory, with one copy, data may be lost: by name.",
)
@_count_option
@_seed_option
@_directory_option
@json_option
def push(copies: int, ack: str, count: int, seed: int | None, directory: Path | None, as_json: bool) -> int:
    """Kill workers while maps push, commit and readers read: every record once, no map runs again."""
    from holdfast.client.cli.drills.push import WORKERS, drill

    chosen = partial(drill, copies=copies, ack=Ack[ack.upper()])
    return _run(f"push --copies {copies} --ack {ack}", chosen, count, seed, directory, as_json, WORKERS)


@drill.command()
@click.option("--copies", default=1, show_default=True, type=click.IntRange(1, 2), help="Copies of every partition.")
@click.option("--count", default=5, show_default=True, type=click.IntRange(min=1), help="Times that all are restarted.")
@_seed_option
@_directory_option
@json_option
def rolling(copies: int, count: int, seed: int | None, directory: Path | None, as_json: bool) -> int:
    """Restart every worker in turn, in order, under load: nothing is lost, nothing runs again, nobody notices."""
    from holdfast.client.cli.drills import rolling as module

    chosen = partial(module.drill, copies=copies)
    return _run(f"rolling --copies {copies}", chosen, count, seed, directory, as_json, module.workers(copies))


@drill.command("slow-disk")
@click.option("--clients", default=64, show_default=True, type=click.IntRange(2, 1024), help="Client processes.")
@click.option(
    "--seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=1.0),
    help="How long they push. Starting them, what they still had to send, sealing and reading back come on top: at "
    "20 MB/s that is about 25 s with 64 clients.",
)
@click.option(
    "--memory", default=256, show_default=True, type=click.IntRange(min=64), help="The worker's budget in MiB."
)
@click.option("--count", default=1, show_default=True, type=click.IntRange(min=1), help="Rounds to run.")
@_directory_option
@json_option
def slow_disk(clients: int, seconds: float, memory: int, count: int, directory: Path | None, as_json: bool) -> int:
    """Let many clients push at full speed at a disk of 20 MB/s: bounded memory, nobody starves, nothing is lost."""
    from holdfast.client.cli.drills.slow_disk import drill, settings

    run = partial(drill, clients=clients, seconds=seconds, memory=memory * MIB)
    return _run(f"slow-disk --clients {clients}", run, count, 0, directory, as_json, 1, settings(memory * MIB))


@drill.command()
@click.option(
    "--kill",
    "killed",
    default="reuse",
    show_default=True,
    type=click.Choice(["reuse", "leader", "worker", "rolling", "executors"]),
    help="What is killed: workers, masters and both between reads of one shuffle; or, while queries run, the leading "
    "master, a worker, or executors of local-cluster[2,1,1024]. rolling: workers are restarted in order, in turn.",
)
@click.option("--copies", default=1, show_default=True, type=click.IntRange(1, 2), help="Copies of every partition.")
@click.option(
    "--every",
    default=None,
    type=click.FloatRange(min=0.5),
    help="Seconds from one kill to the next, while queries run. Default: 5, for workers 10.",
)
@_count_option
@_seed_option
@_directory_option
@json_option
def spark(
    killed: str,
    copies: int,
    every: float | None,
    count: int,
    seed: int | None,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Kill servers or executors under a Spark job with the plug-in: equal answers, nothing computed twice."""
    from holdfast.client.cli.drills import spark as module
    from holdfast.client.cli.drills.spark_driver import check_installed

    check_installed()
    chosen = module.Killed(killed)
    run = partial(module.drill, killed=chosen, copies=copies, every=every)
    name = f"spark --kill {killed} --copies {copies}"
    return _run(name, run, count, seed, directory, as_json, module.workers(chosen, copies))


def _run(
    name: str,
    drill: Drill,
    count: int,
    seed: int | None,
    directory: Path | None,
    as_json: bool,
    workers: int = 1,
    settings: Sections | None = None,
) -> int:
    chosen = random.SystemRandom().getrandbits(32) if seed is None else seed
    report = run_drill(name, drill, count, chosen, directory, workers, settings)
    show(report.document(), as_json, report.draw)
    return 0 if report.good else 1


#: What is killed again and again is to go on taking data: that is what is rehearsed.
_STEADY: Sections = {"placement": {"flap_starts": 1_000_000}}


def run_drill(
    name: str,
    drill: Drill,
    count: int,
    seed: int,
    directory: Path | None = None,
    workers: int = 1,
    settings: Sections | None = None,
) -> Report:
    """Start a cluster of three masters and some workers, run the drill in it and return what it found."""
    report = Report(name, seed, count)
    with (
        local_cluster(masters=3, workers=workers, dir=directory, settings={**_STEADY, **(settings or {})}) as cluster,
        progress(f"drill {name}", count) as step,
    ):
        began = time.monotonic()
        try:
            asyncio.run(drill(cluster, report, random.Random(seed), step))
        except DrillError as error:
            report.check("nothing hangs", False, str(error))
        except HoldfastError as error:  # a server that does not start again, masters that never answer
            report.check("servers come back", False, f"{type(error).__name__}: {error}")
        report.seconds = time.monotonic() - began
    report.close()
    return report
