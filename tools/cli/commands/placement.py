"""`holdfast placement`, `holdfast reload`: where partitions go, and the settings that decide it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import ConfigError, HoldfastError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes
from holdfast.common.statuses import Status
from holdfast.common.tags import named
from holdfast.tools.cli.asking import answer, each_master, with_masters
from holdfast.tools.cli.naming import SHUFFLE, ShuffleName, find_application, shuffle_argument
from holdfast.tools.cli.output import (
    PATH,
    escape,
    json_option,
    masters_if_any_option,
    masters_of,
    masters_option,
    show,
    table,
)
from holdfast.tools.cli.records import kind_name

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.common.net.control import ControlClient

#: A script that resolves may take its time.
_RELOAD_SECONDS_MAX = 60.0
#: Partitions and workers that are drawn; --json has all.
_ROWS_MAX = 20
_DECISION_KEYS = ("time_ms", "what", "partitions", "policy", "order", "candidates", "spared", "not_adhering", "soft")


@click.command()
@shuffle_argument(required=False)
@click.option(
    "--simulate",
    "file",
    type=PATH,
    help="What a policy would do on the cluster that this TOML file describes; no server is needed.",
)
@masters_if_any_option
@json_option
def placement(shuffle: ShuffleName | None, file: Path | None, masters: str | None, as_json: bool) -> int:
    """Explain where the partitions of a shuffle were placed, or would be placed in a described cluster.

    Without GENERATION it is the newest one. Exit 1 if partitions are not placed by the policy.
    """
    if shuffle is not None and file is None:
        document = _explained(shuffle, masters_of(masters))
        show(document, as_json, lambda screen: _draw_explained(document, screen))
    elif file is not None and shuffle is None:
        document = _simulated(file)
        show(document, as_json, lambda screen: _draw_simulated(document, screen))
    else:
        raise click.UsageError(f"name either a shuffle, {SHUFFLE}, or --simulate FILE")
    return 1 if document["not_adhering"] else 0


def _simulated(file: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "holdfast.master.simulate", str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError(done.stderr.strip() or f"the simulation ended with {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _draw_simulated(found: dict[str, Any], screen: Console) -> None:
    screen.print(
        f"{found['partitions']} partitions, {_copies(found['copies'])}, on"
        f" {counted(found['workers'], 'worker')} in {counted(found['racks'], 'rack')}: policy {found['policy']},"
        f" order {found['order']}; {found['seconds']} s, {in_bytes(found['encoded_bytes'])} encoded"
    )
    screen.print(
        f"copies on a worker: {found['least']} to {found['most']}, {found['mean']} in the mean; fullest to mean"
        f" {found['fullest_to_mean']}, farthest from its share {100 * found['farthest_from_share']:.1f} %"
    )
    screen.print(f"not as wished: {_adherence(found)}; all copies on one rack: {found['on_one_rack']}")
    racks = list(found["by_rack"].items())
    screen.print(table(("rack", "#copies"), racks[:_ROWS_MAX]))
    if len(racks) > _ROWS_MAX:
        screen.print(f"and {counted(len(racks) - _ROWS_MAX, 'more rack')}; --json has all")


def _explained(named: ShuffleName, masters: str) -> dict[str, Any]:
    application, shuffle, generation = named
    wanted = -1 if generation is None else generation  # -1: the newest

    async def question(client: ControlClient) -> pb.ExplainPlacementReply:
        whole: pb.ExplainPlacementReply | None = None
        instance = (await find_application(client, application)).instance
        while whole is None or len(whole.locations) < whole.total:
            request = pb.ExplainPlacementRequest(
                instance=instance,
                shuffle=shuffle,
                generation=whole.key.generation if whole is not None else wanted,
                first=len(whole.locations) if whole is not None else 0,
            )
            reply = await answer(client, "Admin/ExplainPlacement", request)
            if whole is None:
                whole = reply
            elif not reply.locations:
                break
            else:
                whole.locations.extend(reply.locations)
                whole.adheres.extend(reply.adheres)
                whole.adherence.extend(reply.adherence)
                known = {each.worker for each in whole.workers}
                whole.workers.extend(each for each in reply.workers if each.worker not in known)
        return whole

    return _document(with_masters(masters, question))


def _document(reply: pb.ExplainPlacementReply) -> dict[str, Any]:
    workers = {each.worker: each for each in reply.workers}

    def described(number: int) -> dict[str, Any]:
        known = workers.get(number)
        return {"worker": number, "name": known.name if known else "", "place": known.place if known else ""}

    return {
        "instance": reply.key.instance.hex(),
        "shuffle": reply.key.shuffle,
        "generation": reply.key.generation,
        "kind": kind_name(reply.kind),
        **{key: getattr(reply, key) for key in ("copies_wanted", "copies", "policy", "order", "not_adhering", "soft")},
        "tags": list(reply.tags),
        "partitions": [
            {
                "partition": each.partition,
                "epoch": each.epoch,
                "workers": list(map(described, each.workers)),
                "adheres": adheres,
                "adherence": adherence,
            }
            for each, adheres, adherence in zip(reply.locations, reply.adheres, _adherences(reply), strict=True)
        ],
        "decisions": [
            {
                **{key: getattr(each, key) for key in _DECISION_KEYS},
                "left_out": [{"worker": one.worker, "name": one.name, "why": one.why} for one in each.left_out],
                "left_out_total": each.left_out_total,
            }
            for each in reply.decisions
        ],
    }


def _draw_explained(document: dict[str, Any], screen: Console) -> None:
    rows = document["partitions"]
    what = "partitions" if document["kind"] == "reduce" else "places of the ring, each copied to the next one"
    pool = f", on workers with {named(document['tags'])}" if document["tags"] else ""
    screen.print(
        f"{len(rows)} {what}, {document['copies']} of {_copies(document['copies_wanted'])}{pool}; policy"
        f" {document['policy']}, order {document['order']}; not as wished now: {_adherence(document)}"
    )
    held = Counter(_named(one) for each in rows for one in each["workers"])
    screen.print(table(("worker", "#copies"), [(escape(name), count) for name, count in held.most_common(_ROWS_MAX)]))
    bad = [each for each in rows if not each["adheres"]]
    shown = [
        (
            each["partition"],
            each["epoch"],
            escape(", ".join(map(_named, each["workers"]))),
            each["adherence"],
        )
        for each in (bad or rows)[:_ROWS_MAX]
    ]
    if bad:
        screen.print("not as wished:")
    screen.print(table(("#partition", "#epoch", "workers", "adherence"), shown))
    if len(bad or rows) > _ROWS_MAX:
        screen.print(f"and {len(bad or rows) - _ROWS_MAX} more; --json has all")
    for each in document["decisions"]:
        _draw_decision(each, screen)
    if not document["decisions"]:
        screen.print("the current leader has not placed it, and has no record of the candidates")


def _draw_decision(each: dict[str, Any], screen: Console) -> None:
    screen.print(
        f"{each['what']}: {counted(each['partitions'], 'partition')} among {counted(each['candidates'], 'candidate')}"
        f" ({each['spared']} of them spared), policy {each['policy']}, order {each['order']};"
        f" {_adherence(each)} not as wished"
    )
    for one in each["left_out"]:
        screen.print(f"  {escape(one['name'])}: {escape(one['why'])}")
    if each["left_out_total"] > len(each["left_out"]):
        screen.print(f"  and {counted(each['left_out_total'] - len(each['left_out']), 'more worker')}")


def _adherences(reply: pb.ExplainPlacementReply) -> list[str]:
    """strict, soft or failed for each; a master that is older knows no soft ones."""
    if len(reply.adherence) == len(reply.adheres):
        return [pb.Adherence.Name(each).removeprefix("ADHERENCE_").lower() for each in reply.adherence]
    return ["strict" if each else "failed" for each in reply.adheres]


def _adherence(found: dict[str, Any]) -> str:
    soft, count = found["soft"], found["not_adhering"]
    return f"{count} ({soft} soft, {count - soft} failed)" if soft else str(count)


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _named(one: dict[str, Any] | None) -> str:
    return f"{one['name'] or one['worker']} {one['place']}".strip() if one else "-"


@click.command()
@masters_option
@json_option
def reload(masters: str, as_json: bool) -> int:
    """Have every master read [placement] of its configuration again: policies, regions, resolvers and their tables.

    Exit 1 if one could not; its configuration is unchanged.
    """

    async def question(client: ControlClient) -> list[dict[str, Any]]:
        found = [reply for reply in (await client.masters()).values() if reply is not None]
        every = {each.name: each.http for reply in found for each in reply.masters}
        if not every:
            raise RetryError(f"no master answers at {', '.join(client.endpoints)}")
        request = pb.ReloadRequest()
        answers = await each_master(client, every.values(), "Admin/Reload", lambda _: request, _RELOAD_SECONDS_MAX)
        return [_reloaded(name, address, answers[address]) for name, address in every.items()]

    document = {"masters": with_masters(masters, question)}
    show(document, as_json, lambda screen: _draw_reloaded(document, screen))
    return 1 if any(each["problem"] for each in document["masters"]) else 0


def _reloaded(name: str, address: str, answer: pb.ReloadReply | HoldfastError) -> dict[str, Any]:
    changed, problem = [], ""
    if not isinstance(answer, HoldfastError):
        changed = list(answer.changed)
    elif answer.status == Status.BAD_REQUEST:
        problem = f"is unchanged: {answer}"
    else:
        problem = f"it is not known whether it has read them: {answer}"
    return {"name": name, "address": address, "changed": changed, "problem": problem}


def _draw_reloaded(document: dict[str, Any], screen: Console) -> None:
    for each in document["masters"]:
        described = each["problem"] or ", ".join(each["changed"]) or "nothing changed, hosts are resolved anew"
        screen.print(f"{escape(each['name'])}: {escape(described)}", soft_wrap=True)
