"""Applies commands to the replicated state: one function per command, each a plain story of refusals and one change.

Rules
* Deterministic: what decides is the state, the command and its place in the log, nothing else.
* `apply` never raises for what a command holds: a refusal, which ends the function of a command, is an answer with a
  status and a sentence.
* A refused command changes nothing; one that was done before answers as if it were done now.

Called by master/machine, once for each command of the log, in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from holdfast.common.addresses import is_web_address
from holdfast.common.ids import INSTANCE_BYTES, NO_STATE, Generation, ShuffleId, ShuffleKey, shuffle_name
from holdfast.common.limits import COMMAND_PARTS_MAX, COPIES_MAX, MAPS_MAX, NAME_BYTES_MAX, PARTITIONS_MAX
from holdfast.common.statuses import Status
from holdfast.common.tags import named, tags_problem
from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.epochs import mark_incomplete, move_epochs, revive
from holdfast.master.core.state.incomplete import incomplete_count
from holdfast.master.core.state.records import (
    AVOID_BYTES,
    KIND_MAP,
    KIND_REDUCE,
    Answer,
    Application,
    Lease,
    Shuffle,
    Upload,
)
from holdfast.master.core.state.state import State
from holdfast.master.core.state.workers import place_workers, register_worker, set_workers_alive, set_workers_draining

_U32 = struct.Struct("<I")


def apply(state: State, index: int, time_ms: int, command: cmd.Command) -> Answer:
    """Apply the command at `index` of the log; return its answer."""
    assert index >= state.index, f"{index} is after {state.index} in the log"
    state.index = index
    state.time_ms = max(state.time_ms, time_ms)
    state.answers.expire(state.time_ms)
    if not command.client:
        return _answer(state, command.body)
    remembered = state.answers.recall(command)
    if remembered is not None:
        return remembered
    answer = _answer(state, command.body)
    state.answers.remember(command, answer, index, state.time_ms)
    return answer


def _answer(state: State, body: cmd.Body) -> Answer:
    try:
        answer = _APPLY[type(body)](state, body)
    except _RefusedError as refused:
        answer = refused.answer
    if isinstance(body, cmd.Commit | cmd.AddCopies) and answer.status != Status.BUSY:
        state.drop_upload(body.upload)
    return answer


class _RefusedError(Exception):
    """Ends what would apply a command."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.detail)
        self.answer = answer


def _refuse(status: Status, detail: str) -> NoReturn:
    raise _RefusedError(Answer(status, detail[: bounds.DETAIL_CHARS_MAX]))


def gone_text(instance: bytes) -> str:
    """What is said of an instance that is not known."""
    return f"application instance {instance.hex()[:8]} is unknown or its last lease expired; register a new instance"


def _application(state: State, instance: bytes) -> Application:
    application = state.applications.get(instance)
    if application is None:
        _refuse(Status.APPLICATION_GONE, gone_text(instance))
    return application


def _shuffle(state: State, key: ShuffleKey) -> Shuffle:
    _application(state, key.instance)
    shuffle = state.shuffle(key)
    if shuffle is None and state.head(key.instance, key.shuffle) is None:
        _refuse(Status.UNKNOWN_SHUFFLE, f"{shuffle_name(key.instance.hex()[:8], key.shuffle)} was never registered")
    if shuffle is None:
        _refuse(Status.UNKNOWN_GENERATION, f"{key} is not open: it was dropped, or never registered")
    return shuffle


def _uploaded(state: State, upload: bytes) -> bytes:
    whole = state.uploaded(upload)
    if whole is None:
        _refuse(Status.BUSY, "parts of this call are missing; send them again")
    return whole


def _begin_state(state: State, body: cmd.BeginState) -> Answer:
    """Name the state; of two that ask at once the first one does."""
    if body.state == NO_STATE:
        _refuse(Status.BAD_REQUEST, "0 names no state")
    if body.after == state.state_index:
        if state.state_id != NO_STATE:  # restored: who was gone then may have data of later
            for worker in [each for each in state.workers.values() if each.gone]:
                state.put_worker(replace(worker, gone=False))
        state.state_id, state.state_index = body.state, state.index
    return Answer()


def _register_application(state: State, body: cmd.RegisterApplication) -> Answer:
    known = state.applications.get(body.instance)
    if known is not None:
        if (known.name, known.user, known.tags) != (body.name, body.user, body.tags):
            tags = f", with {named(known.tags)}" if known.tags else ""
            _refuse(Status.CONFLICT, f'this instance was registered as "{known.name}" of "{known.user}"{tags}')
        return _add_lease(state, known, body.holder, body.lease_ms)
    if body.instance in state.gone:
        _refuse(Status.APPLICATION_GONE, gone_text(body.instance))
    _check_lease(body.holder, body.lease_ms)
    names = (body.name, body.user, body.spark_id, body.ui_url)
    if any(len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX for name in names):
        _refuse(Status.BAD_REQUEST, f"a name has at most {NAME_BYTES_MAX} bytes")
    if body.ui_url and not is_web_address(body.ui_url):
        _refuse(Status.BAD_REQUEST, "the address of an application's pages begins with http:// or https://")
    if problem := tags_problem(body.tags):
        _refuse(Status.BAD_REQUEST, problem)
    _check_instance(body.instance)
    if len(state.applications) >= bounds.APPLICATIONS_MAX:
        _refuse(Status.NO_ROOM, f"{bounds.APPLICATIONS_MAX} applications are registered; forget some first")
    state.applications_made += 1
    state.put_application(
        Application(
            instance=body.instance,
            name=body.name,
            user=body.user,
            created_ms=state.time_ms,
            serial=state.applications_made,
            leases=(Lease(body.holder, body.lease_ms),),
            spark_id=body.spark_id,
            tags=body.tags,
            ui_url=body.ui_url,
        )
    )
    return Answer(subject=body.instance)


def _attach(state: State, body: cmd.Attach) -> Answer:
    application = _application(state, body.instance) if body.instance else state.newest_named(body.name)
    if application is None:
        _refuse(Status.APPLICATION_GONE, f'no application named "{body.name}" is alive')
    return _add_lease(state, application, body.holder, body.lease_ms)


def _add_lease(state: State, application: Application, holder: bytes, lease_ms: int) -> Answer:
    _check_lease(holder, lease_ms)
    others = tuple(lease for lease in application.leases if lease.holder != holder)
    if len(others) >= bounds.LEASES_PER_APPLICATION_MAX:
        _refuse(Status.NO_ROOM, f"the application has {len(others)} leases; detach some first")
    leases = (*others, Lease(holder, lease_ms))
    if leases != application.leases:
        state.put_application(replace(application, leases=leases))
    return Answer(subject=application.instance)


def _detach(state: State, body: cmd.Detach) -> Answer:
    application = state.applications.get(body.instance)
    if application is None or application.lease(body.holder) is None:
        return Answer()  # it ended already, which is what was asked for
    return Answer(value=_end_leases(state, application, {body.holder}))


def _end_leases(state: State, application: Application, holders: set[bytes]) -> int:
    """End leases of one application; return how many shuffles were dropped with its last one."""
    left = tuple(lease for lease in application.leases if lease.holder not in holders)
    if left:
        state.put_application(replace(application, leases=left))
        return 0
    return _drop_application(state, application.instance)


def _drop_application(state: State, instance: bytes) -> int:
    dropped = state.drop_application(instance)
    _trim_gone(state)
    return dropped


def _trim_gone(state: State) -> None:
    while len(state.gone) > bounds.GONE_MAX:
        del state.gone[next(iter(state.gone))]


def _mark_leases(state: State, body: cmd.MarkLeases) -> Answer:
    moment = state.time_ms if body.marked else 0
    for ref in body.leases:
        application = state.applications.get(ref.instance)
        lease = application.lease(ref.holder) if application else None
        if application is None or lease is None or bool(lease.marked_ms) == body.marked:
            continue
        leases = tuple(
            replace(each, marked_ms=moment) if each.holder == ref.holder else each for each in application.leases
        )
        state.put_application(replace(application, leases=leases))
    return Answer()


def _end_marked_leases(state: State, body: cmd.EndLeases) -> Answer:
    before = len(state.applications)
    for ref in body.leases:
        application = state.applications.get(ref.instance)
        lease = application.lease(ref.holder) if application else None
        if application is not None and lease is not None and lease.marked_ms:
            _end_leases(state, application, {ref.holder})
    return Answer(value=before - len(state.applications))


def _register_shuffle(state: State, body: cmd.RegisterShuffle) -> Answer:
    key = body.key
    _application(state, key.instance)
    known = state.shuffle(key)
    if known is not None:
        state.drop_upload(body.upload)
        _check_shape(known, body)
        avoid = tuple(sorted({*known.avoid, *body.avoid}))
        if not known.committed_ms and len(known.avoid) < len(avoid) <= bounds.WORKERS_MAX:
            state.put_shuffle(replace(known, avoid=avoid))  # other readers of the generation before blame others
        return Answer()
    _check_generation(state, body)
    _check_bounds(state, body)
    assignment = body.assignment
    if body.upload:
        assignment = _uploaded(state, body.upload)
        state.drop_upload(body.upload)
    _check_array_room(state, len(assignment) + AVOID_BYTES * len(body.avoid))
    state.put_shuffle(
        Shuffle(
            key=key._replace(state=state.state_id),
            kind=body.kind,
            partitions=body.partitions,
            maps=body.maps,
            copies_wanted=body.copies_wanted,
            copies=body.copies,
            ack=body.ack,
            assignment=assignment,
            created_ms=state.time_ms,
            created_index=state.index,
            avoid=body.avoid,
            ack_copies=body.acknowledging,
        )
    )
    return Answer()


def _check_shape(known: Shuffle, body: cmd.RegisterShuffle) -> None:
    shape = {name: getattr(body, name) for name in ("kind", "partitions", "maps", "copies_wanted", "ack")}
    for name, now in {**shape, "ack_copies": body.acknowledging}.items():
        before = getattr(known, name)
        if before != now and (name != "maps" or now):  # 0 maps: not said, and a commit says it for everybody
            _refuse(Status.CONFLICT, f"shuffle {known.key} was registered with {name} {before}, not {now}")


def _check_generation(state: State, body: cmd.RegisterShuffle) -> None:
    """Generations open one after another, each once the one before is committed, dropped or has lost data; none comes
    back."""
    key = body.key
    highest = state.head(key.instance, key.shuffle)
    if highest is None:
        return
    if key.generation <= highest:
        _refuse(Status.GENERATION_CLOSED, f"{key} was dropped; it never opens again")
    if key.generation != highest + 1:
        _refuse(Status.GENERATION_CLOSED, f"{key} cannot open: the next generation is {highest + 1}")
    before = state.shuffle(ShuffleKey(key.instance, key.shuffle, Generation(highest)))
    # What a restore forgot may hold the end of a generation that it found open: workers may take nothing more of it.
    forgotten = before is not None and before.key.state != state.state_id
    if before is not None and not before.committed_ms and not body.lost_before and not forgotten:
        _refuse(Status.GENERATION_CLOSED, f"generation {highest} is open; push into it, or commit it first")


def _check_bounds(state: State, body: cmd.RegisterShuffle) -> None:
    if not 1 <= body.partitions <= PARTITIONS_MAX or body.maps > MAPS_MAX:
        _refuse(
            Status.BAD_REQUEST,
            f"{body.partitions} partitions, {body.maps} maps: a shuffle has 1 to {PARTITIONS_MAX} and up to {MAPS_MAX}",
        )
    placed = bool(body.assignment) != bool(body.upload)
    if not 1 <= body.copies <= body.copies_wanted <= COPIES_MAX or body.ack > 2 or not placed:
        _refuse(Status.BAD_REQUEST, f"copies are 1 to {COPIES_MAX}, ack is 0, 1 or 2, and there is an assignment")
    if body.acknowledging > body.copies_wanted:
        text = f"{body.ack_copies} copies cannot acknowledge a push where {body.copies_wanted} are asked for"
        _refuse(Status.BAD_REQUEST, text)
    if body.kind == KIND_MAP and body.acknowledging != body.copies_wanted:
        _refuse(Status.BAD_REQUEST, "every copy of a MAP file is sealed before its map reports; ack_copies are all")
    if len(body.avoid) > bounds.WORKERS_MAX:
        _refuse(Status.BAD_REQUEST, f"at most {bounds.WORKERS_MAX} workers are avoided, not {len(body.avoid)}")
    if body.kind not in (KIND_MAP, KIND_REDUCE):
        _refuse(Status.BAD_REQUEST, f"partitions are of kind {KIND_MAP} or {KIND_REDUCE}, not {body.kind}")
    below = state.below[body.key.instance]
    own, runs = len(below.shuffles), below.runs
    if own >= bounds.SHUFFLES_PER_APPLICATION_MAX or runs >= bounds.RUNS_PER_APPLICATION_MAX:
        _refuse(
            Status.NO_ROOM,
            f"the application has {own} shuffles alive and {runs} gaps in the ids it had; unregister some, or go "
            "on in a new instance",
        )
    if state.shuffle_count >= bounds.SHUFFLES_MAX or state.run_count >= bounds.RUNS_MAX:
        _refuse(Status.NO_ROOM, f"{state.shuffle_count} shuffles are registered; unregister or forget some first")


def _check_array_room(state: State, more: int) -> None:
    if state.array_bytes + more > bounds.ARRAY_BYTES_MAX:
        _refuse(
            Status.NO_ROOM,
            f"the masters hold {state.array_bytes} bytes of assignments and winners, {more} more do not fit in "
            f"{bounds.ARRAY_BYTES_MAX}; unregister or forget some shuffles first",
        )


def _epochs_of(shuffle: Shuffle) -> int:
    return shuffle.partitions + shuffle.moved


def _commit(state: State, body: cmd.Commit) -> Answer:
    shuffle = _shuffle(state, body.key)
    if shuffle.committed_ms:
        if shuffle.winners_digest == body.winners_digest:
            return Answer()
        _refuse(Status.CONFLICT, f"{body.key} is committed with other winners; a commit is final")
    if misfit := shuffle.misfit(body.maps, body.partitions):
        _refuse(Status.CONFLICT, misfit)
    if shuffle.kind == KIND_REDUCE and body.epochs != _epochs_of(shuffle):
        _refuse(Status.BUSY, f"{body.key} has other epochs than the {body.epochs} that were sealed; seal again")
    if body.incomplete != incomplete_count(shuffle.incomplete):
        _refuse(Status.BUSY, f"{body.key} has more incomplete copies than the {body.incomplete} known; seal again")
    winners, manifest = body.winners, body.manifest
    if body.upload:
        whole = _uploaded(state, body.upload)
        split = max(len(whole) - body.manifest_bytes, 0)
        winners, manifest = whole[:split], whole[split:]
    if not winners or bool(manifest) != (shuffle.kind == KIND_REDUCE):
        _refuse(Status.BAD_REQUEST, "a commit has winners, and of REDUCE partitions a manifest")
    _check_array_room(state, len(winners) + len(manifest))
    state.put_shuffle(
        replace(
            shuffle,
            maps=body.maps,
            winners=winners,
            winners_digest=body.winners_digest,
            committed_ms=max(state.time_ms, 1),
            manifest=manifest,
            **_counts(body),
        )
    )
    return Answer()


def _add_copies(state: State, body: cmd.AddCopies) -> Answer:
    """Replace the manifest of a committed generation by one that names more copies of the same epochs."""
    shuffle = _shuffle(state, body.key)
    if not shuffle.manifest or shuffle.manifest_version != body.manifest_version:
        _refuse(Status.CONFLICT, f"{body.key} has no manifest, or a newer one than was added to")
    manifest = _uploaded(state, body.upload) if body.upload else body.manifest
    if not manifest:
        _refuse(Status.BAD_REQUEST, "copies are added with a manifest")
    _check_array_room(state, len(manifest) - len(shuffle.manifest))
    state.put_shuffle(
        replace(
            shuffle,
            manifest=manifest,
            manifest_version=shuffle.manifest_version + 1,
            **_counts(body),
        )
    )
    return Answer()


def _counts(body: cmd.Commit | cmd.AddCopies) -> dict[str, Any]:
    names = ("data_bytes", "lost", "under_replicated", "awaited", "unsealed")
    return {name: getattr(body, name) for name in names}


def _revive(state: State, body: cmd.Revive) -> Answer:
    return revive(state, _shuffle(state, body.key), body)


def _mark_incomplete(state: State, body: cmd.MarkIncomplete) -> Answer:
    return mark_incomplete(state, _shuffle(state, body.key), body)


def _unregister(state: State, body: cmd.Unregister) -> Answer:
    key = body.key
    _application(state, key.instance)
    if key.state != NO_STATE and state.shuffle(key) is None and not state.dropped(key):
        return Answer()  # of what a restore forgot; what has that number now is another one
    doomed = [each for each in state.generations(key.instance, key.shuffle) if each.generation <= key.generation]
    for each in doomed:
        state.drop_shuffle(each)
    return Answer(value=len(doomed))


def _forget(state: State, body: cmd.Forget) -> Answer:
    instance = body.instance
    _check_instance(instance)
    if instance not in state.applications:
        if body.one_shuffle or instance in state.gone:
            _refuse(Status.APPLICATION_GONE, f"no application with instance {instance.hex()[:8]} is alive")
        # From before a restored backup, or very old: workers that still have data of it wait for this word.
        state.gone[instance] = state.time_ms
        _trim_gone(state)
        return Answer(subject=_U32.pack(0))
    if not body.one_shuffle:
        return Answer(value=_drop_application(state, instance), subject=_U32.pack(1))
    doomed = list(state.generations(instance, ShuffleId(body.shuffle)))
    for key in doomed:
        state.drop_shuffle(key)
    return Answer(value=len(doomed), subject=_U32.pack(0))


def _part(state: State, body: cmd.Part) -> Answer:
    for name in [
        name for name, upload in state.uploads.items() if state.time_ms - upload.started_ms > bounds.UPLOAD_LIFE_MS
    ]:
        state.drop_upload(name)
    if not 1 <= body.parts <= COMMAND_PARTS_MAX or body.number >= body.parts or not body.data or not body.upload:
        _refuse(Status.BAD_REQUEST, f"part {body.number} of {body.parts} is empty or out of range")
    upload = state.uploads.get(body.upload) or Upload((b"",) * body.parts, state.time_ms)
    if len(upload.parts) != body.parts:
        _refuse(Status.CONFLICT, f"this array has {len(upload.parts)} parts, not {body.parts}")
    if state.upload_bytes + len(body.data) > bounds.UPLOAD_BYTES_MAX or (
        body.upload not in state.uploads and len(state.uploads) >= bounds.UPLOADS_MAX
    ):
        _refuse(Status.BUSY, "too many large calls are pending; try again")
    parts = (*upload.parts[: body.number], body.data, *upload.parts[body.number + 1 :])
    state.put_upload(body.upload, Upload(parts, upload.started_ms))
    return Answer()


def _check_instance(instance: bytes) -> None:
    if len(instance) != INSTANCE_BYTES:
        _refuse(Status.BAD_REQUEST, f"an instance has {INSTANCE_BYTES} bytes")


def _check_lease(holder: bytes, lease_ms: int) -> None:
    if len(holder) != INSTANCE_BYTES:
        _refuse(Status.BAD_REQUEST, f"a lease holder has {INSTANCE_BYTES} bytes, not {len(holder)}")
    if not 1 <= lease_ms <= bounds.LEASE_MS_MAX:
        _refuse(Status.BAD_REQUEST, f"a lease is 1 to {bounds.LEASE_MS_MAX} ms, not {lease_ms}")


_APPLY: dict[type[Any], Callable[[State, Any], Answer]] = {
    cmd.RegisterWorker: register_worker,
    cmd.SetWorkersAlive: set_workers_alive,
    cmd.PlaceWorkers: place_workers,
    cmd.SetWorkersDraining: set_workers_draining,
    cmd.BeginState: _begin_state,
    cmd.RegisterApplication: _register_application,
    cmd.Attach: _attach,
    cmd.Detach: _detach,
    cmd.MarkLeases: _mark_leases,
    cmd.EndLeases: _end_marked_leases,
    cmd.RegisterShuffle: _register_shuffle,
    cmd.Revive: _revive,
    cmd.MarkIncomplete: _mark_incomplete,
    cmd.MoveEpochs: move_epochs,
    cmd.Commit: _commit,
    cmd.AddCopies: _add_copies,
    cmd.Unregister: _unregister,
    cmd.Forget: _forget,
    cmd.Part: _part,
}
