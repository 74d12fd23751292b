"""Replaces the manifest of a committed generation where more is known of its copies.

Rules: the command names the version that it was made from. Apply refuses it where that was replaced meanwhile, and it
is made again. Readers with an older manifest have fewer copies, and nothing that is wrong. Called by late.py and
restoring.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from holdfast.common.formats.reduce_layouts import EpochResult, ReduceManifest
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.master.control.locations import epochs_of, off_loop
from holdfast.master.core.seals import Tally, tally
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Answer, Shuffle
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.uploads import submit, upload_name

#: How often a manifest is made anew because it was replaced meanwhile.
_TRIES = 5

T = TypeVar("T")
#: Epochs of a manifest, as they are and as they should be. It may run in a thread, and more than once.
Change = Callable[[Sequence[EpochResult]], tuple[EpochResult, ...]]


class NewManifest(NamedTuple):
    """A manifest that took the place of another one."""

    manifest: bytes
    tally: Tally
    #: copies that can be read and could not before
    added: int


async def with_manifest(shuffle: Shuffle, use: Callable[[Sequence[EpochResult]], T]) -> T:
    """Return what `use`, which may run in a thread, makes of the epochs in a manifest. Raises ProtocolError."""
    return await off_loop(epochs_of(shuffle), lambda: use(ReduceManifest.decode(shuffle.manifest).epochs))


async def replace_manifest(leader: Leader, key: ShuffleKey, change: Change) -> int | None:
    """Have a manifest changed; return how many copies more can be read, None if there is nothing to change: also where
    the shuffle was dropped. Raises ConflictError if it never stayed the same for long enough."""
    tries = 0
    while (shuffle := leader.peek(lambda state: state.shuffle(key))) is not None and shuffle.manifest:
        made = await off_loop(epochs_of(shuffle), partial(_changed, shuffle, change))
        if made is None:
            return None
        answer = await _propose(leader, shuffle, made)
        tries += 1
        if answer.status == Status.CONFLICT and tries < _TRIES:
            continue
        leader.expect(answer)
        return made.added
    return None


def _changed(shuffle: Shuffle, change: Change) -> NewManifest | None:
    known = ReduceManifest.decode(shuffle.manifest).epochs
    results = change(known)
    if results == known:
        return None
    added = sum(len(new.readable) - len(old.readable) for new, old in zip(results, known, strict=True))
    manifest = ReduceManifest(shuffle.partitions, results).encode()
    return NewManifest(manifest, tally(results, shuffle.copies_wanted), added)


async def _propose(leader: Leader, shuffle: Shuffle, made: NewManifest) -> Answer:
    version = shuffle.manifest_version.to_bytes(4, "little")
    upload = upload_name(len(made.manifest), repr(shuffle.key).encode(), version, made.manifest)
    numbers = {name: number for name, number in made.tally._asdict().items() if name != "epochs"}
    within = b"" if upload else made.manifest
    body = cmd.AddCopies(
        key=shuffle.key, manifest_version=shuffle.manifest_version, manifest=within, upload=upload, **numbers
    )
    return await submit(leader, cmd.Command(body), upload, made.manifest)
