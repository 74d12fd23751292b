"""Mistakes planted in what knows of hosts: part of bugs.py. Only seeds from HOST_SEEDS on can show them."""

from __future__ import annotations

from typing import Any

from holdfast.master.control import draining as draining_module
from holdfast.master.control import moving as moving_module
from holdfast.master.control import restoring as restorer_module
from holdfast.master.control.restoring import CopyRestorer
from holdfast.master.core.drains import Drains
from holdfast.master.placement import chooser as chooser_module
from holdfast.worker.server.membership.neighbours import Neighbours
from tests.sim.swap import Mistakes, Swap

HOST_BUGS = Mistakes()
bug = HOST_BUGS.add


@bug
def replacement_shares_a_host() -> list[Swap]:
    """Whoever takes the place of a worker may be on the host of another copy."""
    return [(chooser_module, "_fits", lambda hosts, avoid, one: one.worker not in avoid)]


@bug
def copy_is_made_again_beside_another() -> list[Swap]:
    """A copy is made again on whatever worker is there, also on the host of one that stays."""

    def new(short: Any, group: Any, workers: Any, on_host: Any = None) -> list[int]:
        there = [one for one, worker in workers.items() if worker.alive and one not in (*short.left_by, *short.stay)]
        beside = [one for one in there if workers[one].host in {workers[each].host for each in short.stay}]
        return [*beside, *there][: short.missing]

    return [(restorer_module, "_new", new)]


@bug
def speaker_forgets_its_neighbours() -> list[Swap]:
    """Who speaks for its host sends its own heartbeat, and passes the answer to it on to all."""

    async def beat(self: Any, request: Any, send: Any, seconds: float) -> Any:
        async def alone(request: Any) -> Any:
            neighbours = len(request.neighbours)
            del request.neighbours[:]
            reply = await send(request)
            reply.neighbours.extend([type(reply)(raft_index=reply.raft_index)] * neighbours)
            return reply

        return await original(self, request, alone, seconds)

    original = Neighbours.beat
    return [(Neighbours, "beat", beat)]


@bug
def removal_waits_for_a_restart_only() -> list[Swap]:
    """A worker may be removed as soon as it may be restarted."""

    def judge(*values: Any) -> Any:
        verdict = original(*values)
        return verdict._replace(removal=verdict.restart)

    original = vars(draining_module)["judge"]
    return [(draining_module, "judge", judge)]


@bug
def nobody_who_goes_away_is_needed() -> list[Swap]:
    """Of a host that goes away at a time nothing is kept."""
    return [(Drains, "needed", lambda self, worker, kept, lives: kept._replace(shuffles=0))]


@bug
def open_shuffles_need_nobody() -> list[Swap]:
    """What is not committed needs no host that goes away."""

    async def workers_of(self: Any, shuffle: Any, numbers: Any) -> Any:
        return await original(self, shuffle, numbers) if shuffle.committed_ms else frozenset()

    original = CopyRestorer._workers_of
    return [(CopyRestorer, "_workers_of", workers_of), (moving_module, "_open_maps", lambda _: [])]
