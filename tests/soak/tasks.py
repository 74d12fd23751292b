"""What map and reduce tasks of the soak do, each in a process of its own that may die."""

import multiprocessing
import os
import random
import traceback
from collections.abc import Callable, Sequence
from enum import Enum
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from holdfast.client import PushStatus, ReduceShuffle
from holdfast.client.read.push_reader import PartitionReader
from holdfast.client.shuffle import RETURN_GRACE_SECONDS
from holdfast.common.ids import PartitionId
from holdfast.common.limits import MIB
from holdfast.common.system import process
from tests.soak.records import Shape, Totals, payloads, totals

T = TypeVar("T")

#: What an attempt may have unacknowledged: little, so that there are many frames, and many answers to lose.
_BUFFER_BYTES = 2 * MIB
#: Payloads that are summed at once.
_SUM_AT_ONCE = 20_000
#: Forks from a process that has no threads.
_CONTEXT = multiprocessing.get_context("forkserver")


class Outcome(Enum):
    """What an attempt is for."""

    #: it pushes everything and reports
    WINS = "wins"
    #: its process ends in the middle, without a word
    DIES = "dies"
    #: its caller gives it up in the middle
    ABORTS = "aborts"
    #: it pushes everything, and another attempt is committed
    LOSES = "loses"


class DiedError(Exception):
    """A task ended without a result."""


def run_in_child(function: Callable[..., T], *values: Any) -> T:
    """Call a function in a new process; returns what it returned. Raises DiedError, with the child's traceback."""
    _CONTEXT.set_forkserver_preload(["tests.soak.tasks"])
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    child = _CONTEXT.Process(target=_child, args=(theirs, function, values), daemon=True)
    child.start()
    theirs.close()
    try:
        good, answer = ours.recv()
    except EOFError:
        raise DiedError(f"{function.__name__} died without a word") from None
    finally:
        child.join()
        ours.close()
        child.close()
    if not good:
        raise DiedError(f"{function.__name__} failed:\n{answer}")
    result: T = answer
    return result


def _child(answers: Connection, function: Callable[..., object], values: Sequence[object]) -> None:
    process.die_with_parent(os.getppid())
    try:
        answers.send((True, function(*values)))
    except Exception:  # noqa: BLE001 - whatever it is, the parent must see it
        answers.send((False, traceback.format_exc()))


def push(shuffle: ReduceShuffle, shape: Shape, map_id: int, attempt: int, outcome: Outcome) -> PushStatus | None:
    """Push a map's records, all or some of them; returns the status of an attempt that wins."""
    ends_at = random.Random(f"{shape.seed}/{attempt}").randrange(shape.per_map // 20 + 1)
    with shuffle.writer(map_id, attempt, buffer_bytes=_BUFFER_BYTES) as writer:
        for index, (partition, payload) in enumerate(payloads(shape, map_id)):
            writer.write(partition, payload)
            if index == ends_at and outcome is Outcome.DIES:
                os._exit(1)
            if index == ends_at and outcome is Outcome.ABORTS:
                return None
        status = writer.close()
    return status if outcome is Outcome.WINS else None


def read(shuffle: ReduceShuffle, partitions: Sequence[int]) -> tuple[dict[int, Totals], int]:
    """Read some partitions; returns what each held, and how many batches came more than once."""
    wanted = [PartitionId(each) for each in partitions]
    reader = PartitionReader(shuffle, shuffle.manifest(), wanted, None, RETURN_GRACE_SECONDS)
    held: dict[int, list[bytes]] = {partition: [] for partition in partitions}
    found = dict.fromkeys(partitions, Totals())
    for record in reader:
        payloads_held = held[record.partition]
        payloads_held.append(record.payload)  # type: ignore[arg-type]  # nothing was compressed
        if len(payloads_held) >= _SUM_AT_ONCE:
            found[record.partition] = found[record.partition].plus(totals(payloads_held))
            payloads_held.clear()
    for partition, rest in held.items():
        found[partition] = found[partition].plus(totals(rest))
    return found, reader.duplicates
