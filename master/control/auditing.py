"""Finds copies that manifests name and their workers do not have any more: a disk was replaced, or lost its files.

Rules
* A worker is asked that started without one of its directories since the shuffle was registered, whose machine booted,
  with which directories in memory go, or that says of a directory that it cannot be used; and asked again when that
  changes. What others have is what they said at the seal.
* What is missing is known to each leader since it leads, as is who is lost, and is waited for as long: a disk that was
  not mounted comes back with its copies. A manifest keeps naming them.
* Asking changes nothing on the worker. Work waits in the worker's queue, so one that hangs holds up no other.

Runs in the event loop, while this master is the leader. Used by restoring.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.reduce_layouts import EpochResult
from holdfast.common.formats.reduce_messages import SealFlag
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.master.control.manifests import with_manifest
from holdfast.master.core.restoring import CopyKey
from holdfast.master.core.state.records import Shuffle, Worker
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader

#: Epochs of one question: the worker looks them up without a pause.
_EPOCHS_MAX = 1_024
#: How long a worker that did not answer is left alone.
_PAUSE_NS = 10 * 10**9
_NOTHING: frozenset[CopyKey] = frozenset()
_WELL: frozenset[str] = frozenset()
#: A place behind all in the log.
_ANY_INDEX = 1 << 64


class _Disks(NamedTuple):
    """What is known of a worker's directories: its start, and which of them it cannot use."""

    incarnation: int
    failing: frozenset[str]


class _Heard(NamedTuple):
    """What a worker lacked of a shuffle with these disks, and since when that is known; None: it did not say, and is
    left alone until then."""

    disks: _Disks
    lacks: frozenset[CopyKey] | None
    at_ns: int


class Missing(NamedTuple):
    """Copies of one shuffle that their workers do not have, and those of them that are not waited for any more."""

    copies: frozenset[CopyKey] = _NOTHING
    given_up: frozenset[CopyKey] = _NOTHING


class CopyAudit:
    """What living workers lack of committed shuffles."""

    def __init__(self, leader: Leader, asker: Asker, after_ns: int) -> None:
        """`after_ns`: how long a copy that is missing is waited for."""
        self._leader, self._asker, self._after_ns = leader, asker, after_ns
        self.reset()

    def reset(self) -> None:
        """Know nothing, as who has begun to lead."""
        self._heard: dict[ShuffleKey, dict[int, _Heard]] = {}
        self._asking: set[tuple[ShuffleKey, int]] = set()
        #: living workers: what was registered up to which place in the log they may lack, and their disks
        self._suspects: dict[int, tuple[int, _Disks]] = {}
        #: as of when: the latest change of a worker, and which directories cannot be used
        self._seen: tuple[int, dict[int, frozenset[str]]] = -1, {}
        self._newest = 0
        #: shuffles of which these workers have said all
        self._done: dict[ShuffleKey, Shuffle] = {}

    def forget(self, key: ShuffleKey) -> None:
        """A shuffle was dropped."""
        self._heard.pop(key, None)
        self._done.pop(key, None)

    def begin(self, index: int, workers: Mapping[int, Worker]) -> None:
        """Before a look at all shuffles: find out who may lack what was registered up to which place in the log.
        `index`: the place of the latest change of a worker."""
        seen = index, self._leader.conditions.failing()
        if seen == self._seen:
            return
        self._seen, failing = seen, seen[1]
        suspects = {
            number: (
                _ANY_INDEX if number in failing else worker.boot_index,
                _Disks(worker.incarnation, failing.get(number, _WELL)),
            )
            for number, worker in workers.items()
            if worker.alive
        }
        if suspects != self._suspects:
            self._suspects = suspects
            self._newest = max([index for index, _ in suspects.values()], default=0)
            self._done.clear()

    def concerns(self, shuffle: Shuffle) -> bool:
        """Whether anybody may lack anything of it, or did, who has not said all."""
        may_lack = shuffle.created_index < self._newest or shuffle.key in self._heard
        return may_lack and self._done.get(shuffle.key) is not shuffle

    def ask(self, shuffle: Shuffle, named: Collection[int]) -> None:
        """Have those asked that its manifest names, may lack copies and have not said so."""
        key, now = shuffle.key, self._leader.now_ns()
        heard = self._heard.setdefault(key, {})
        suspects = {
            number: disks
            for number, (index, disks) in self._suspects.items()
            if index > shuffle.created_index and number in named
        }
        for number in [each for each in heard if each in self._suspects and each not in suspects]:
            del heard[number]  # all of its disks are back
        open_ = [each for each, disks in suspects.items() if not _has_said(heard.get(each), disks)]
        for number in open_:
            known = heard.get(number)
            rests = known is not None and known.lacks is None and now < known.at_ns
            if rests or (key, number) in self._asking:
                continue
            if self._asker.queues.add(number, partial(self._ask, shuffle, number, suspects[number])):
                self._asking.add((key, number))
        if not open_:
            self._done[key] = shuffle
        if not heard:
            del self._heard[key]

    async def _ask(self, shuffle: Shuffle, number: int, disks: _Disks) -> None:
        key, lacks = shuffle.key, None
        try:
            lacks = await self._lacking(shuffle, number)
        except HoldfastError as error:
            log_event(LogEvent.RESTORE_FAILED, shuffle=key, worker=number, reason=error)
        finally:
            self._asking.discard((key, number))
        if self._leader.peek(lambda state: state.shuffle(key)) is not None:
            now = self._leader.now_ns()
            before = self._heard.setdefault(key, {}).get(number)
            since = before.at_ns if before is not None and before.lacks and before.lacks == lacks else now
            if lacks and since == now:
                name = self._asker.worker(key, number).name
                self._leader.events.tell(LogEvent.SHUFFLE_COPIES_GONE, shuffle=key, worker=name, copies=len(lacks))
            self._heard[key][number] = _Heard(disks, lacks, now + _PAUSE_NS if lacks is None else since)

    async def _lacking(self, shuffle: Shuffle, number: int) -> frozenset[CopyKey]:
        """Which copies a worker does not have that it should. Raises as Asker.ask."""
        wanted = await with_manifest(shuffle, partial(_readable_on, number))
        found: set[CopyKey] = set()
        for first in range(0, len(wanted), _EPOCHS_MAX):
            worker = self._asker.worker(shuffle.key, number)
            some = wanted[first : first + _EPOCHS_MAX]
            answer = await self._asker.ask(worker, shuffle.key, some, SealFlag.LOOK)
            found.update([(number, each.partition, each.epoch) for each in answer.epochs if each.status != Status.OK])
        return frozenset(found)

    def missing(self, key: ShuffleKey) -> Missing:
        """What of a shuffle is missing by now."""
        heard = self._heard.get(key)
        if not heard:
            return Missing()
        ripe = self._leader.now_ns() - self._after_ns
        said = [each for each in heard.values() if each.lacks]
        return Missing(
            _NOTHING.union(*[each.lacks for each in said if each.lacks]),
            _NOTHING.union(*[each.lacks for each in said if each.lacks and each.at_ns <= ripe]),
        )

    def wait_ns(self) -> int:
        """In how many ns the next copies are not waited for any more; 0 if none are."""
        now = self._leader.now_ns()
        left = [
            each.at_ns + self._after_ns - now for heard in self._heard.values() for each in heard.values() if each.lacks
        ]
        return min([ns for ns in left if ns > 0], default=0)


def _has_said(known: _Heard | None, disks: _Disks) -> bool:
    return known is not None and known.disks == disks and known.lacks is not None


def _readable_on(number: int, epochs: Sequence[EpochResult]) -> list[tuple[int, int]]:
    return [
        (each.partition, each.epoch)
        for each in epochs
        if any(copy.readable and copy.worker == number for copy in each.copies)
    ]
