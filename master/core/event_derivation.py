"""What commands of the log did, as events: the same on every master, since all of them apply the same.

Rules: `before` notes what a command may change, `after` compares; so a command that did nothing, was refused or was
answered from memory makes no event. Cheap: both run for every command, in Raft's thread. Called by
state_machine/state_machine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.common.ids import NO_STATE, ShuffleKey, StateId, shuffle_name
from holdfast.common.log_events import LogEvent
from holdfast.master.core.events import Happened
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Answer, Application, Shuffle, Worker
from holdfast.master.core.state.state import State


def before(state: State, body: cmd.Body) -> Any:
    """Return what `after` needs to know of the state before the command."""
    look = _BEFORE.get(type(body))
    return look(state, body) if look is not None else None


def after(state: State, body: cmd.Body, answer: Answer, known: Any) -> list[Happened]:
    """Return what the command did; `known` is what `before` returned."""
    tell = _AFTER.get(type(body)) if answer.ok else None
    return list(tell(state, body, answer, known)) if tell is not None else []


def _name(state: State, key: ShuffleKey) -> str:
    return shuffle_name(state.applications[key.instance].name, *key.number)


def _began(state: State, _: cmd.BeginState, __: Answer, known: StateId) -> Iterator[Happened]:
    if known not in (NO_STATE, state.state_id):
        yield Happened(LogEvent.MASTERS_RESTORED, state=state.state_id)


# Workers.


def _known_worker(state: State, body: cmd.RegisterWorker) -> Worker | None:
    number = state.worker_by_uid.get(body.uid)
    return state.workers[number] if number is not None else None


def _registered(state: State, _: cmd.RegisterWorker, answer: Answer, known: Worker | None) -> Iterator[Happened]:
    now = state.workers.get(answer.value)
    if now is None or now is known:
        return
    if known is None:
        event = LogEvent.WORKER_REGISTERED
    elif known.incarnation != now.incarnation and known.alive and not known.draining_ms:
        event = LogEvent.WORKER_RESTARTED
    elif known.incarnation != now.incarnation or not known.alive:
        event = LogEvent.WORKER_RETURNED
    else:
        return
    yield Happened(event, worker=now.name, host=now.host, incarnation=now.incarnation)


def _named_workers(state: State, body: cmd.SetWorkersAlive | cmd.SetWorkersDraining) -> list[Worker]:
    refs = (*body.workers, *body.gone) if isinstance(body, cmd.SetWorkersAlive) else body.workers
    return [state.workers[number] for number in dict.fromkeys(ref.worker for ref in refs) if number in state.workers]


def _alive(state: State, _: cmd.SetWorkersAlive, __: Answer, known: Iterable[Worker]) -> Iterator[Happened]:
    for worker in known:
        now = state.workers[worker.id]
        if now.state == worker.state:
            continue
        event = LogEvent.WORKER_RETURNED
        if now.gone:
            event = LogEvent.WORKER_LEFT if worker.alive else LogEvent.WORKER_REMOVED
        elif not now.alive:
            event = LogEvent.WORKER_LOST
        yield Happened(event, worker=worker.name, host=worker.host, incarnation=worker.incarnation)


def _draining(state: State, body: cmd.SetWorkersDraining, _: Answer, known: Iterable[Worker]) -> Iterator[Happened]:
    for worker in known:
        if bool(state.workers[worker.id].draining_ms) == bool(worker.draining_ms):
            continue
        event = LogEvent.WORKER_DRAINING if body.draining else LogEvent.WORKER_DRAIN_CANCELLED
        yield Happened(event, worker=worker.name, host=worker.host)


def _moved(_: State, body: cmd.MoveEpochs, answer: Answer, __: None) -> Iterator[Happened]:
    if answer.value:
        yield Happened(LogEvent.EPOCHS_MOVED, shuffles=len({each.key for each in body.revives}), epochs=answer.value)


def _marked_incomplete(state: State, body: cmd.MarkIncomplete, answer: Answer, _: None) -> Iterator[Happened]:
    if answer.value:
        yield Happened(LogEvent.SHUFFLE_COPIES_INCOMPLETE, shuffle=_name(state, body.key), copies=answer.value)


# Applications.


def _application(state: State, body: cmd.RegisterApplication, _: Answer, new: bool) -> Iterator[Happened]:
    found = state.applications.get(body.instance)
    if new and found is not None:
        yield Happened(LogEvent.APPLICATION_REGISTERED, **_names(found))


def _names(application: Application) -> dict[str, object]:
    return {
        "application": application.name,
        **({"user": application.user} if application.user else {}),
        "instance": application.instance.hex(),
        **({"spark_id": application.spark_id} if application.spark_id else {}),
    }


def _leased(state: State, body: cmd.MarkLeases | cmd.EndLeases) -> list[tuple[Application, int]]:
    return _with_shuffles(state, *{ref.instance for ref in body.leases})


def _with_shuffles(state: State, *instances: bytes) -> list[tuple[Application, int]]:
    found = [state.applications[each] for each in sorted(instances) if each in state.applications]
    return [(each, len(state.below[each.instance].shuffles)) for each in found]


def _named(state: State, body: cmd.Detach | cmd.Forget) -> list[tuple[Application, int]]:
    return _with_shuffles(state, body.instance)


def _marked(
    state: State, _: cmd.MarkLeases, __: Answer, known: Iterable[tuple[Application, int]]
) -> Iterator[Happened]:
    for application, _shuffles in known:
        now = state.applications[application.instance]
        if now.silent != application.silent:
            event = LogEvent.APPLICATION_SILENT if now.silent else LogEvent.APPLICATION_HEARD
            yield Happened(event, **_names(now))


def _ended(reason: str) -> Callable[..., Iterator[Happened]]:
    def tell(state: State, _: cmd.Body, __: Answer, known: Iterable[tuple[Application, int]]) -> Iterator[Happened]:
        for application, shuffles in known:
            if application.instance not in state.applications:
                yield Happened(LogEvent.APPLICATION_ENDED, **_names(application), shuffles=shuffles, reason=reason)

    return tell


# Shuffles.


def _not_registered(state: State, body: cmd.RegisterShuffle) -> bool:
    return state.shuffle(body.key) is None


def _shuffle_registered(state: State, body: cmd.RegisterShuffle, _: Answer, is_new: bool) -> Iterator[Happened]:
    shuffle = state.shuffle(body.key)
    if is_new and shuffle is not None and shuffle.copies < shuffle.copies_wanted:
        copies = {"copies": shuffle.copies, "wanted": shuffle.copies_wanted}
        yield Happened(LogEvent.SHUFFLE_FEWER_COPIES, shuffle=_name(state, body.key), **copies)


def _open_shuffle(state: State, body: cmd.Commit) -> bool:
    shuffle = state.shuffle(body.key)
    return shuffle is not None and not shuffle.committed_ms


def _committed(state: State, body: cmd.Commit, _: Answer, was_open: bool) -> Iterator[Happened]:
    shuffle = state.shuffle(body.key)
    if not was_open or shuffle is None or not shuffle.committed_ms:
        return
    name = _name(state, body.key)
    size = {"maps": shuffle.maps, "partitions": shuffle.partitions, "bytes": shuffle.data_bytes}
    if shuffle.lost:
        yield Happened(LogEvent.SHUFFLE_DATA_LOST, shuffle=name, epochs=shuffle.lost, **size)
    else:
        yield Happened(LogEvent.SHUFFLE_COMMITTED, shuffle=name, **size)
    if shuffle.under_replicated:
        fewer = {"epochs": shuffle.under_replicated, "awaited": shuffle.awaited}
        yield Happened(LogEvent.SHUFFLE_UNDER_REPLICATED, shuffle=name, **fewer)


def _copies_added(state: State, body: cmd.AddCopies, _: Answer, known: Shuffle | None) -> Iterator[Happened]:
    now = state.shuffle(body.key)
    if known is None or now is None or now is known:
        return
    name = _name(state, body.key)
    if now.unsealed >= known.unsealed:
        yield Happened(LogEvent.SHUFFLE_COPIES_PLACED, shuffle=name, copies=now.unsealed)
        return
    left = {"lost": now.lost, "under_replicated": now.under_replicated, "awaited": now.awaited}
    yield Happened(LogEvent.SHUFFLE_COPIES_ADDED, shuffle=name, copies=known.unsealed - now.unsealed, **left)


def _doomed(state: State, body: cmd.Unregister) -> list[Shuffle]:
    keys = state.generations(body.key.instance, body.key.shuffle)
    return [shuffle for key in keys if key.generation <= body.key.generation and (shuffle := state.shuffle(key))]


def _dropped(state: State, _: cmd.Unregister, __: Answer, known: Iterable[Shuffle]) -> Iterator[Happened]:
    for shuffle in known:
        if state.shuffle(shuffle.key) is None:
            name = _name(state, shuffle.key)
            committed = bool(shuffle.committed_ms)
            yield Happened(LogEvent.SHUFFLE_DROPPED, shuffle=name, committed=committed, bytes=shuffle.data_bytes)


def _forgotten(
    state: State, body: cmd.Forget, _: Answer, known: Iterable[tuple[Application, int]]
) -> Iterator[Happened]:
    if not body.one_shuffle:
        yield from _ended("holdfast forget")(state, body, _, known)
        return
    for application, shuffles in known:
        if len(state.below[application.instance].shuffles) < shuffles:
            name = shuffle_name(application.name, body.shuffle)
            yield Happened(LogEvent.SHUFFLE_DROPPED, shuffle=name, reason="holdfast forget")


_BEFORE: dict[type[Any], Callable[[State, Any], Any]] = {
    cmd.BeginState: lambda state, _: state.state_id,
    cmd.RegisterWorker: _known_worker,
    cmd.SetWorkersAlive: _named_workers,
    cmd.SetWorkersDraining: _named_workers,
    cmd.RegisterApplication: lambda state, body: body.instance not in state.applications,
    cmd.MarkLeases: _leased,
    cmd.EndLeases: _leased,
    cmd.Detach: _named,
    cmd.RegisterShuffle: _not_registered,
    cmd.Commit: _open_shuffle,
    cmd.AddCopies: lambda state, body: state.shuffle(body.key),
    cmd.Unregister: _doomed,
    cmd.Forget: _named,
}
_AFTER: dict[type[Any], Callable[[State, Any, Answer, Any], Iterable[Happened]]] = {
    cmd.BeginState: _began,
    cmd.RegisterWorker: _registered,
    cmd.SetWorkersAlive: _alive,
    cmd.SetWorkersDraining: _draining,
    cmd.MoveEpochs: _moved,
    cmd.MarkIncomplete: _marked_incomplete,
    cmd.RegisterApplication: _application,
    cmd.MarkLeases: _marked,
    cmd.EndLeases: _ended("its last lease and the grace expired"),
    cmd.Detach: _ended("its last session was closed"),
    cmd.RegisterShuffle: _shuffle_registered,
    cmd.Commit: _committed,
    cmd.AddCopies: _copies_added,
    cmd.Unregister: _dropped,
    cmd.Forget: _forgotten,
}
