"""What commands of the log did, told as events: the same on every master, since all of them apply the same.

Rules: `before` notes what a command may change, `after` compares; so a command that did nothing, was refused or was
answered from memory tells nothing. Cheap: both run for every command, in Raft's thread. Called by
state_machine/state_machine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.common.ids import NO_STATE, ShuffleKey, StateId, shuffle_name
from holdfast.common.sizes import counted, fewer_copies, in_bytes
from holdfast.master.core.events import EventKind, Happened
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


def _state_before(state: State, _: cmd.BeginState) -> StateId:
    return state.state_id


def _began(state: State, _: cmd.BeginState, __: Answer, known: StateId) -> Iterator[Happened]:
    if known not in (NO_STATE, state.state_id):
        text = "the masters go on from a backup: what was registered after it is unknown to them, and workers keep it"
        yield Happened(EventKind.RESTORED, "masters", text)


# Workers.


def _known_worker(state: State, body: cmd.RegisterWorker) -> Worker | None:
    number = state.worker_by_uid.get(body.uid)
    return state.workers[number] if number is not None else None


def _registered(state: State, _: cmd.RegisterWorker, answer: Answer, known: Worker | None) -> Iterator[Happened]:
    now = state.workers.get(answer.value)
    if now is None or now is known:
        return
    if known is None:
        yield Happened(EventKind.WORKER_REGISTERED, now.name, f"worker {now.name} registered for the first time")
    elif known.incarnation != now.incarnation:
        if known.alive and not known.draining_ms:
            text = f"worker {now.name} started again (start {now.incarnation}) and had not been drained"
            yield Happened(EventKind.WORKER_RESTARTED, now.name, text)
        else:
            yield Happened(EventKind.WORKER_BACK, now.name, f"worker {now.name} is back (start {now.incarnation})")
    elif not known.alive:
        yield Happened(EventKind.WORKER_BACK, now.name, f"worker {now.name} is back")


def _named_workers(state: State, body: cmd.SetWorkersAlive | cmd.SetWorkersDraining) -> list[Worker]:
    return [worker for ref in body.workers if (worker := state.workers.get(ref.worker)) is not None]


def _alive(state: State, body: cmd.SetWorkersAlive, _: Answer, known: Iterable[Worker]) -> Iterator[Happened]:
    for worker in known:
        if state.workers[worker.id].alive == worker.alive:
            continue
        if body.alive:
            yield Happened(EventKind.WORKER_BACK, worker.name, f"worker {worker.name} is back")
        elif worker.draining_ms:
            text = f"worker {worker.name} is gone, after it was drained"
            yield Happened(EventKind.WORKER_DRAINS, worker.name, text)
        else:
            text = f"worker {worker.name} on {worker.host} is lost: it sends no heartbeats"
            yield Happened(EventKind.WORKER_LOST, worker.name, text)


def _draining(state: State, body: cmd.SetWorkersDraining, _: Answer, known: Iterable[Worker]) -> Iterator[Happened]:
    for worker in known:
        if bool(state.workers[worker.id].draining_ms) == bool(worker.draining_ms):
            continue
        if body.draining:
            yield Happened(EventKind.WORKER_DRAINS, worker.name, f"worker {worker.name} drains: it takes nothing new")
        else:
            yield Happened(EventKind.DRAIN_CANCELLED, worker.name, f"worker {worker.name} takes new data again")


def _moved(_: State, body: cmd.MoveEpochs, answer: Answer, __: None) -> Iterator[Happened]:
    if answer.value:
        shuffles = counted(len({revive.key for revive in body.revives}), "shuffle")
        text = f"{counted(answer.value, 'open epoch')} of {shuffles} moved from workers lost, restarted or draining"
        yield Happened(EventKind.EPOCHS_MOVED, shuffles, text)


# Applications.


def _new_application(state: State, body: cmd.RegisterApplication) -> bool:
    return body.instance not in state.applications


def _application(state: State, body: cmd.RegisterApplication, _: Answer, new: bool) -> Iterator[Happened]:
    found = state.applications.get(body.instance)
    if new and found is not None:
        of_user = f" of {found.user}" if found.user else ""
        yield Happened(EventKind.APPLICATION_REGISTERED, found.name, f"application {found.name}{of_user} registered")


def _leased(state: State, body: cmd.MarkLeases | cmd.EndLeases) -> list[tuple[Application, int]]:
    return _with_shuffles(state, {ref.instance for ref in body.leases})


def _with_shuffles(state: State, instances: Iterable[bytes]) -> list[tuple[Application, int]]:
    found = [state.applications[each] for each in sorted(instances) if each in state.applications]
    return [(each, len(state.below[each.instance].shuffles)) for each in found]


def _marked(
    state: State, _: cmd.MarkLeases, __: Answer, known: Iterable[tuple[Application, int]]
) -> Iterator[Happened]:
    for application, _shuffles in known:
        now = state.applications[application.instance]
        were, are = [all(lease.marked_ms for lease in each.leases) for each in (application, now)]
        if are and not were:
            text = f"application {now.name} is silent: every lease of it is over, and after the grace it ends"
            yield Happened(EventKind.APPLICATION_SILENT, now.name, text)
        elif were and not are:
            yield Happened(EventKind.APPLICATION_HEARD, now.name, f"application {now.name} was heard again in time")


def _ended(why: str) -> Callable[..., Iterator[Happened]]:
    def tell(state: State, _: cmd.Body, __: Answer, known: Iterable[tuple[Application, int]]) -> Iterator[Happened]:
        for application, shuffles in known:
            if application.instance not in state.applications:
                text = f"application {application.name} ended with {counted(shuffles, 'shuffle')}: {why}"
                yield Happened(EventKind.APPLICATION_ENDED, application.name, text)

    return tell


def _detaching(state: State, body: cmd.Detach) -> list[tuple[Application, int]]:
    return _with_shuffles(state, (body.instance,))


# Shuffles.


def _open_shuffle(state: State, body: cmd.Commit) -> bool:
    shuffle = state.shuffle(body.key)
    return shuffle is not None and not shuffle.committed_ms


def _committed(state: State, body: cmd.Commit, _: Answer, was_open: bool) -> Iterator[Happened]:
    shuffle = state.shuffle(body.key)
    if not was_open or shuffle is None or not shuffle.committed_ms:
        return
    name = _name(state, body.key)
    size = f"{counted(shuffle.maps, 'map')}, {counted(shuffle.partitions, 'partition')}, {in_bytes(shuffle.data_bytes)}"
    if shuffle.lost:
        epochs = counted(shuffle.lost, "epoch")
        text = f"shuffle {name} was committed without {epochs} that no worker sealed; readers of them fail ({size})"
        yield Happened(EventKind.SHUFFLE_LOST_DATA, name, text)
    else:
        yield Happened(EventKind.SHUFFLE_COMMITTED, name, f"shuffle {name} committed: {size}")
    if shuffle.under_replicated:
        text = f"shuffle {name} was committed; {fewer_copies(shuffle.under_replicated, shuffle.awaited)}"
        yield Happened(EventKind.SHUFFLE_UNDER_REPLICATED, name, text)


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _with_copies(state: State, body: cmd.AddCopies) -> Shuffle | None:
    return state.shuffle(body.key)


def _copies_added(state: State, body: cmd.AddCopies, _: Answer, known: Shuffle | None) -> Iterator[Happened]:
    now = state.shuffle(body.key)
    if known is None or now is None or now is known:
        return
    name = _name(state, body.key)
    lost = f"{counted(now.lost, 'epoch')} lost" if now.lost else ""
    fewer = fewer_copies(now.under_replicated, now.awaited) if now.under_replicated else ""
    left = " and ".join(each for each in (lost, fewer) if each) or "nothing"
    text = f"{_copies(known.unsealed - now.unsealed)} of shuffle {name} sealed after its commit; left: {left}"
    yield Happened(EventKind.SHUFFLE_COPIES_ADDED, name, text)


def _doomed(state: State, body: cmd.Unregister) -> list[Shuffle]:
    keys = state.generations(body.key.instance, body.key.shuffle)
    return [shuffle for key in keys if key.generation <= body.key.generation and (shuffle := state.shuffle(key))]


def _dropped(state: State, _: cmd.Unregister, __: Answer, known: Iterable[Shuffle]) -> Iterator[Happened]:
    for shuffle in known:
        if state.shuffle(shuffle.key) is None:
            name = _name(state, shuffle.key)
            size = in_bytes(shuffle.data_bytes) if shuffle.committed_ms else "not committed"
            yield Happened(EventKind.SHUFFLE_DROPPED, name, f"shuffle {name} dropped by its application: {size}")


def _named(state: State, body: cmd.Forget) -> list[tuple[Application, int]]:
    return _with_shuffles(state, (body.instance,))


def _forgotten(
    state: State, body: cmd.Forget, _: Answer, known: Iterable[tuple[Application, int]]
) -> Iterator[Happened]:
    if not body.one_shuffle:
        yield from _ended("an operator had it forgotten")(state, body, _, known)
        return
    for application, shuffles in known:
        if len(state.below[application.instance].shuffles) < shuffles:
            name = shuffle_name(application.name, body.shuffle)
            yield Happened(EventKind.SHUFFLE_DROPPED, name, f"shuffle {name} dropped: an operator had it forgotten")


_BEFORE: dict[type[Any], Callable[[State, Any], Any]] = {
    cmd.BeginState: _state_before,
    cmd.RegisterWorker: _known_worker,
    cmd.SetWorkersAlive: _named_workers,
    cmd.SetWorkersDraining: _named_workers,
    cmd.RegisterApplication: _new_application,
    cmd.MarkLeases: _leased,
    cmd.EndLeases: _leased,
    cmd.Detach: _detaching,
    cmd.Commit: _open_shuffle,
    cmd.AddCopies: _with_copies,
    cmd.Unregister: _doomed,
    cmd.Forget: _named,
}
_AFTER: dict[type[Any], Callable[[State, Any, Answer, Any], Iterable[Happened]]] = {
    cmd.BeginState: _began,
    cmd.RegisterWorker: _registered,
    cmd.SetWorkersAlive: _alive,
    cmd.SetWorkersDraining: _draining,
    cmd.MoveEpochs: _moved,
    cmd.RegisterApplication: _application,
    cmd.MarkLeases: _marked,
    cmd.EndLeases: _ended("its last lease was over, and the grace too"),
    cmd.Detach: _ended("its last holder left"),
    cmd.Commit: _committed,
    cmd.AddCopies: _copies_added,
    cmd.Unregister: _dropped,
    cmd.Forget: _forgotten,
}
