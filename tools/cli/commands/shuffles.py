"""`holdfast shuffles`, `holdfast shuffles show`: the shuffles, and what is in one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from holdfast.common.ids import shuffle_name
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import counted, in_bytes, shuffle_failures
from holdfast.tools.cli.asking import answer, with_masters
from holdfast.tools.cli.naming import ShuffleName, find_application, shuffle_argument
from holdfast.tools.cli.output import (
    Document,
    Fitted,
    escape,
    in_seconds,
    json_option,
    masters_if_any_option,
    masters_of,
    masters_option,
    show,
    watched,
)
from holdfast.tools.cli.records import shuffle_description, shuffle_record

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.common.net.control import ControlClient

#: Shuffles that masters send at once.
_SHUFFLES_MAX = 10_000
#: Workers that are drawn; --json has all that masters send.
_ROWS_MAX = 40
#: The longest bar of a histogram.
_BAR_COLUMNS = 40


@click.group(invoke_without_command=True)
@click.option(
    "--app", "--app-id", "app", default="", metavar="APP", help="Only of this one: its name, instance or id in Spark."
)
@click.option("--user", default="", metavar="USER", help="Only of this user.")
@click.option("--state", type=click.Choice(["open", "committed"]), help="Only those in this state.")
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(1, _SHUFFLES_MAX), help="How many to list at most."
)
@watched
@masters_if_any_option
@json_option
def shuffles(app: str, user: str, state: str | None, limit: int, masters: str | None, as_json: bool) -> None:
    """List the shuffles and what keeps them alive; `holdfast shuffles show` tells what is in one of them."""
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx, ctx.invoked_subcommand)
        return

    async def question(client: ControlClient) -> pb.ListShufflesReply:
        instance = (await find_application(client, app)).instance if app else b""
        request = pb.ListShufflesRequest(instance=instance, limit=limit, user=user, state=state or "")
        reply: pb.ListShufflesReply = await answer(client, "Admin/ListShuffles", request)
        return reply

    reply = with_masters(masters_of(masters), question)
    found = [shuffle_record(each) for each in reply.shuffles]
    document = {"shuffles": found, "total": reply.total}
    show(document, as_json, lambda screen: _draw_shuffles(found, reply.total, screen))


def _refuse_options(ctx: click.Context, command: str) -> None:
    """Raises UsageError for options of the list, which would say nothing to another command."""
    for parameter in ctx.command.params:
        if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"write {parameter.opts[0]} behind `{command}`, if it is an option of that.", ctx)


#: What quotas count.
_HELD = ("bytes", "files")


def _held(shuffle: dict[str, Any], of: str) -> str:
    """What an application or a user holds, and may hold."""
    size, size_limit, files, files_limit = [shuffle[f"{of}_{what}{end}"] for what in _HELD for end in ("", "_limit")]
    sizes = in_bytes(size) + (f" of {in_bytes(size_limit)}" if size_limit else "")
    return f"{sizes} in {f'{files} of {files_limit} files' if files_limit else counted(files, 'file')}"


def _state_text(shuffle: dict[str, Any]) -> str:
    """Its state, with the epochs that are lost or have fewer copies than were asked for, now or permanently."""
    lost = f"{shuffle['lost']} lost" if shuffle["lost"] else ""
    awaited, stay = shuffle["awaited"], shuffle["under_replicated"] - shuffle["awaited"]
    later = f"{awaited} under-replicated until workers are back" if awaited else ""
    fewer = f"{stay} under-replicated permanently" if stay else ""
    epochs = ", ".join(each for each in (lost, later, fewer) if each)
    return f"{shuffle['state']} (epochs: {epochs})" if epochs else str(shuffle["state"])


def _draw_shuffles(found: list[dict[str, Any]], total: int, screen: Console) -> None:
    keys = ("shuffle", "?user", "?instance", "state", "?#maps", "?#partitions", "#bytes")
    users = any(one[f"user_{what}_limit"] for one in found for what in _HELD)
    of_whom = ("application", "user") if users else ("application",)
    rows = []
    for one in found:
        name = shuffle_name(one["application"], one["shuffle"], one["generation"])
        shown = one | {"shuffle": name, "instance": one["instance"][:8], "bytes": in_bytes(one["bytes"])}
        shown["state"] = _state_text(one)
        held = [_held(one, of) for of in of_whom]
        rows.append([*(shown[key.lstrip("?#")] for key in keys), *held, one["why"]])
    screen.print(Fitted((*keys, *(f"?#{of} holds" for of in of_whom), "why"), rows))
    if found:
        allows = escape("on all workers, second copies counted, of what [quota] allows")
        screen.print(f"{' and '.join(of_whom)} holds: {allows}")
    if total > len(found):
        screen.print(f"{len(found)} of {total} shown; --limit shows more")


@shuffles.command("show")
@shuffle_argument()
@watched
@masters_option
@json_option
def show_one(shuffle: ShuffleName, masters: str, as_json: bool) -> int:
    """Show what is in one shuffle: sizes of its partitions, copies, epochs, failures, and where its data is.

    Without GENERATION it is the newest one. Exit 1 if data of it is lost.
    """
    generation = -1 if shuffle.generation is None else shuffle.generation  # -1: the newest

    async def question(client: ControlClient) -> pb.DescribeShuffleReply:
        instance = (await find_application(client, shuffle.application)).instance
        request = pb.DescribeShuffleRequest(instance=instance, shuffle=shuffle.shuffle, generation=generation)
        reply: pb.DescribeShuffleReply = await answer(client, "Admin/DescribeShuffle", request)
        return reply

    document = shuffle_description(with_masters(masters, question))
    show(document, as_json, lambda screen: _draw(document, screen))
    return 1 if document["shuffle"]["lost"] else 0


def _draw(document: Document, screen: Console) -> None:
    one, copies = document["shuffle"], document["copies"]
    name = shuffle_name(one["application"], one["shuffle"], one["generation"])
    since = document["committed_ms"] or one["created_ms"]
    state = f"{one['state']} for {in_seconds(max(document['now_ms'] - since, 0) / 1000)}"
    user = f", user {escape(one['user'])}" if one["user"] else ""
    maps = f"{counted(one['maps'], 'map')}" if one["maps"] else "maps not said yet"
    screen.print(f"{escape(name)}: {one['kind'].upper()}, {state}{user}, instance {one['instance']}", soft_wrap=True)
    screen.print(f"kept: {escape(one['why'])}", soft_wrap=True)
    screen.print(f"shape: {counted(one['partitions'], 'partition')}, {maps}")
    if one["sealing"]:
        waits = f"; waits for {escape(', '.join(document['waits_for']))}" if document["waits_for"] else ""
        screen.print(f"commit: {one['sealed']} of {counted(one['sealing'], 'copy')} sealed{waits}", soft_wrap=True)
    acknowledging = f", {one['ack_copies']} acknowledge" if one["kind"] == "reduce" else ""
    became = [f"{count} {what}" for what, count in copies.items() if count and what != "placed"]
    of_all = f"; {copies['placed']} in all" if copies["placed"] else ""
    those = f": {', '.join(became)}" if became else ""
    screen.print(f"copies: {one['copies_wanted']} asked for, {one['copies']} placed{acknowledging}{of_all}{those}")
    if one["kind"] == "reduce":
        screen.print(f"epochs: {one['epochs']}{_moves_text(document)}")
    epochs, incomplete = document["epochs"], one["incomplete"]
    lost = one["lost"], epochs["lost"], epochs["partitions_lost"]
    for failure in shuffle_failures(*lost, one["under_replicated"], one["awaited"], incomplete):
        screen.print(f"[bold red]failure[/]: {escape(failure)}", soft_wrap=True)
    _draw_sizes(document, screen)
    _draw_hosts(document, screen)
    _draw_readers(document, screen)


def _moves_text(document: Document) -> str:
    epochs = document["epochs"]
    if not epochs["partitions_moved"]:
        return ", no partition moved"
    most = f"{epochs['epochs_most']} of partition {epochs['epochs_most_partition']} at most"
    return f", {counted(epochs['partitions_moved'], 'partition')} moved, {most}"


def _draw_sizes(document: Document, screen: Console) -> None:
    sizes = document["sizes"]
    if sizes is None:
        screen.print("sizes: known after the commit")
        return
    one = sizes["of"].removesuffix("s")
    total, median, p99, largest = (in_bytes(sizes[f"{key}_bytes"]) for key in ("total", "median", "p99", "largest"))
    skew = f"{sizes['skew']:.1f}" if sizes["skew"] is not None else "- (the median is 0)"
    screen.print(
        f"sizes of {sizes['of']}: total {total}, median {median}, p99 {p99}, largest {largest} ({one}"
        f" {sizes['largest']}); skew, largest to median: {skew}"
    )
    most = max((each["count"] for each in sizes["histogram"]), default=0)
    rows = [
        (
            f"< {in_bytes(each['below_bytes'])}" if each["from_bytes"] else "0 B",
            each["count"],
            "█" * -(-each["count"] * _BAR_COLUMNS // most),
        )
        for each in sizes["histogram"]
    ]
    screen.print(Fitted(("#size", f"#{sizes['of']}", "?"), rows))


def _draw_hosts(document: Document, screen: Console) -> None:
    rows = [
        (host["host"], worker["name"] or worker["worker"], worker["state"], worker["copies"], in_bytes(worker["bytes"]))
        for host in document["hosts"]
        for worker in host["workers"]
    ]
    screen.print(Fitted(("host", "worker", "state", "#copies", "#bytes"), rows[:_ROWS_MAX]))
    hosts = document["hosts_total"]
    if len(rows) > _ROWS_MAX or hosts > len(document["hosts"]):
        screen.print(f"the first {min(_ROWS_MAX, len(rows))} workers, on {counted(hosts, 'host')}; --json has more")
    if document["committed_ms"] is None:
        screen.print("copies: placed there; bytes: as workers report their largest shuffles, all generations together")


def _draw_readers(document: Document, screen: Console) -> None:
    readers, now_ms = document["readers"], document["now_ms"]
    if not readers:
        screen.print("read by: nobody has asked this leader where the data is (jar-free tasks need not)")
        return
    rows = [
        (each["host"], each["asked"], f"{in_seconds(max(now_ms - each['last_ms'], 0) / 1000)} ago")
        for each in readers[:_ROWS_MAX]
    ]
    screen.print(Fitted(("read by", "#asked", "last"), rows))
    if len(readers) > _ROWS_MAX:
        screen.print(f"the last {_ROWS_MAX} of {counted(len(readers), 'host')}; --json has all")
