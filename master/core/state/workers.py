"""Applies what happens to workers: a start that registers, and being found lost or back.

Called by apply.py; its rules hold here too.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.common.ids import INSTANCE_BYTES
from holdfast.common.limits import NAME_BYTES_MAX, U32_MAX
from holdfast.common.statuses import Status
from holdfast.common.tags import tags_problem
from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Answer, Worker
from holdfast.master.core.state.state import State


def register_worker(state: State, body: cmd.RegisterWorker) -> Answer:
    """Give a worker its number, or take note of a new start of it."""
    refusal = _shape_problem(body) or _conflict(state, body)
    if refusal is not None:
        return refusal
    number = state.worker_by_uid.get(body.uid)
    if number is None:
        if len(state.workers) >= bounds.WORKERS_MAX:
            return Answer(Status.NO_ROOM, f"{bounds.WORKERS_MAX} workers are registered, and no more fit")
        state.workers_made += 1
        number = state.workers_made
    else:
        known = state.workers[number]
        if body.incarnation < known.incarnation or (
            body.incarnation == known.incarnation and not _same_start(known, body)
        ):
            lowest = known.incarnation + 1
            return Answer(
                Status.INCARNATION_TOO_LOW,
                f'worker "{known.name}" has started with incarnation {known.incarnation}; '
                f"the lowest accepted is {lowest}",
                value=lowest,
            )
        if body.incarnation == known.incarnation and known.alive:
            return Answer(value=number)
    _free_name(state, body.name, number)
    state.put_worker(_record(state, number, body))
    return Answer(value=number)


def set_workers_alive(state: State, body: cmd.SetWorkersAlive) -> Answer:
    """Take note that workers are lost or back, and that lost ones are gone. Answer: value = how many changed. One whose
    host went to another machine meanwhile is not back: it is asked to register, and hears why."""
    changed = set()
    for ref in body.workers:
        worker = state.workers.get(ref.worker)
        if worker is None or worker.incarnation != ref.incarnation or worker.alive == body.alive:
            continue
        if not body.alive or machine_conflict(state, worker) is None:
            state.put_worker(replace(worker, alive=body.alive, gone=False, changed_ms=state.time_ms))
            changed.add(worker.id)
    for ref in body.gone:
        worker = state.workers.get(ref.worker)
        if worker is not None and worker.incarnation == ref.incarnation and not worker.alive and not worker.gone:
            state.put_worker(replace(worker, gone=True, changed_ms=state.time_ms))
            changed.add(worker.id)
    return Answer(value=len(changed))


def place_workers(state: State, body: cmd.PlaceWorkers) -> Answer:
    """Take note of where workers are. Answer: value = how many changed."""
    if any(len(each.place.encode("utf-8", "replace")) > NAME_BYTES_MAX for each in body.workers):
        return Answer(Status.BAD_REQUEST, f"a place has at most {NAME_BYTES_MAX} bytes")
    changed = 0
    for each in body.workers:
        worker = state.workers.get(each.worker)
        if worker is not None and worker.place != each.place:
            state.put_worker(replace(worker, place=each.place))
            changed += 1
    return Answer(value=changed)


def set_workers_draining(state: State, body: cmd.SetWorkersDraining) -> Answer:
    """Take note that starts of workers drain, or do not any more. Answer: value = how many changed."""
    changed = 0
    for ref in body.workers:
        worker = state.workers.get(ref.worker)
        if worker is None or worker.incarnation != ref.incarnation:
            continue
        since, leaves = (0, 0)
        if body.draining:
            since, leaves = worker.draining_ms or max(state.time_ms, 1), body.leaves_ms or worker.leaves_ms
        if (since, leaves) != (worker.draining_ms, worker.leaves_ms):
            state.put_worker(replace(worker, draining_ms=since, leaves_ms=leaves))
            changed += 1
    return Answer(value=changed)


def _record(state: State, number: int, body: cmd.RegisterWorker) -> Worker:
    known = state.workers.get(number)
    started = boot = kept = state.index
    draining_ms, leaves_ms, place = 0, 0, body.place
    if known is not None:
        if body.incarnation == known.incarnation:
            started = known.started_index
            draining_ms, leaves_ms = known.draining_ms, known.leaves_ms  # a new start drains no more
        if not place and body.host == known.host:
            place = known.place  # a leader that could not resolve it in time says nothing of where it is
        here = {each.id for each in body.directories}
        gone = [each for each in known.directories if each.id not in here]
        if all(each.in_memory for each in gone):
            kept = known.kept_index
            if not gone and body.boot_id and body.boot_id == known.boot_id:
                boot = known.boot_index
    return Worker(
        id=number,
        uid=body.uid,
        name=body.name,
        incarnation=body.incarnation,
        host=body.host,
        rack=body.rack,
        data_address=body.data_address,
        http_address=body.http_address,
        directories=body.directories,
        boot_id=body.boot_id,
        version=body.version,
        alive=True,
        changed_ms=state.time_ms,
        started_index=started,
        boot_index=boot,
        kept_index=kept,
        place=place,
        draining_ms=draining_ms,
        leaves_ms=leaves_ms,
        machine_id=body.machine_id,
        tags=body.tags,
    )


def machine_conflict(state: State, worker: Worker | cmd.RegisterWorker) -> str | None:
    """Why this worker cannot be alive beside those that are: its host is another machine, or its machine another host.

    Those that are lost or gone are in nobody's way, since a machine may be set up anew under the name of its host; and
    neither is its own start of before.
    """
    if not worker.machine_id:
        return None
    for other in _alive(state, worker, state.workers_of_host.get(worker.host, set())):
        if other.machine_id not in ("", worker.machine_id):
            return (
                f'host "{worker.host}" is another machine, that of worker "{other.name}": two machines share a '
                "worker.host only if both are given the same worker.machine_id"
            )
    for other in _alive(state, worker, state.workers_of_machine.get(worker.machine_id, set())):
        if other.host != worker.host:
            return (
                f'the machine of host "{worker.host}" is host "{other.host}", by worker "{other.name}": workers of '
                "one machine share a worker.host, unless each host is given a worker.machine_id of its own"
            )
    return None


def _alive(state: State, worker: Worker | cmd.RegisterWorker, numbers: set[int]) -> list[Worker]:
    """Those of these workers that are alive, but for the one itself, in the order of their numbers."""
    others = (state.workers[number] for number in sorted(numbers))
    return [each for each in others if each.alive and each.uid != worker.uid]


def _free_name(state: State, name: str, heir: int) -> None:
    """A worker that is gone leaves its name to one that comes with it, and is called by its number, too."""
    number = state.worker_by_name.get(name, heir)
    if number != heir:
        given = f"{name}#{number}"
        while given in state.worker_by_name:
            given += "#"
        state.put_worker(replace(state.workers[number], name=given))


def _same_start(known: Worker, body: cmd.RegisterWorker) -> bool:
    """Whether this is the process that registered before: another one cannot listen at the same addresses."""
    same = ("name", "data_address", "http_address", "boot_id", "directories")
    return all(getattr(known, name) == getattr(body, name) for name in same)


def _conflict(state: State, body: cmd.RegisterWorker) -> Answer | None:
    own = state.worker_by_uid.get(body.uid)
    named = state.worker_by_name.get(body.name)
    if named is not None and named != own and not state.workers[named].gone:
        return Answer(
            Status.WORKER_CONFLICT,
            f'the name "{body.name}" belongs to worker {named} with another uid; give this worker another worker.name, '
            f"start it on the directories of that one, or, if that one never comes back, `holdfast remove {named}`",
        )
    for directory in body.directories:
        owner = state.worker_by_directory.get(directory.id)
        if owner is not None and owner != own:
            return Answer(
                Status.WORKER_CONFLICT,
                f"directory {directory.path} belongs to worker {owner}; "
                "a directory stays with the worker that made it: take it out of worker.directories",
            )
    reason = machine_conflict(state, body)
    return None if reason is None else Answer(Status.WORKER_CONFLICT, reason)


def _shape_problem(body: cmd.RegisterWorker) -> Answer | None:
    ids = [directory.id for directory in body.directories]
    names = (body.name, body.host, body.rack, body.place, body.boot_id, body.version, body.machine_id)
    problem = ""
    if len(body.uid) != INSTANCE_BYTES or any(len(each) != INSTANCE_BYTES for each in ids):
        problem = f"a worker's uid and the ids of its directories have {INSTANCE_BYTES} bytes"
    elif not body.name or not body.host or not body.data_address or not 1 <= body.incarnation <= U32_MAX:
        problem = "a worker has a name, a host, a data address and an incarnation from 1"
    elif not 1 <= len(ids) <= bounds.DIRECTORIES_MAX or len(set(ids)) != len(ids):
        problem = f"a worker has 1 to {bounds.DIRECTORIES_MAX} directories, each with an id of its own"
    elif any(
        len(text.encode("utf-8", "replace")) > NAME_BYTES_MAX for text in (*names, body.data_address, body.http_address)
    ):
        problem = f"names and addresses have at most {NAME_BYTES_MAX} bytes"
    elif any(len(each.path.encode("utf-8", "replace")) > 4096 or len(each.tier) > 16 for each in body.directories):
        problem = "a directory's path has at most 4096 bytes and its tier 16"
    else:
        problem = tags_problem(body.tags)
    return Answer(Status.BAD_REQUEST, problem) if problem else None
