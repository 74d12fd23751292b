"""One generation of one shuffle, whatever kind its partitions are of: what is asked of the masters for it.

Rules: picklable and light; what was committed is kept once per process. Readers and writers know their shuffle as this;
shuffle.py and reduce_shuffle.py are the two kinds.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.client.connection.addresses import known_addresses, sights_of
from holdfast.client.connection.runtime import runtime
from holdfast.client.connection.ticket import Ticket, explain
from holdfast.client.notebook import table
from holdfast.client.read.manifests import AnyManifest
from holdfast.client.read.shared_read_state import read_state_of
from holdfast.common.errors import GiveUpError, HoldfastError, RetryError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import KIB, LONG_POLL_MS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.waiting import said

#: How long reader() waits for the commit.
COMMIT_WAIT_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
#: Manifests up to this size travel with the shuffle to its tasks; larger ones are fetched once per process.
MANIFEST_CARRIED_BYTES_MAX = 256 * KIB

_Kept = TypeVar("_Kept")
Manifest_co = TypeVar("Manifest_co", bound=AnyManifest, covariant=True)


def keep(kept: OrderedDict[ShuffleKey, _Kept], key: ShuffleKey, value: _Kept, most: int) -> _Kept:
    """Keep a value of a shuffle, of at most so many; return the one kept now: of threads that come at once one wins."""
    found = kept.setdefault(key, value)
    while len(kept) > most:
        kept.popitem(last=False)
    return found


@dataclass(repr=False)
class ClientShuffle(Generic[Manifest_co]):
    """One generation of one shuffle, whatever kind its partitions are of."""

    ticket: Ticket
    key: ShuffleKey
    partitions: int
    #: copies that were asked for, and those that could be placed; 0 where it was opened to be read: not known
    copies_wanted: int = field(default=0, kw_only=True)
    copies: int = field(default=0, kw_only=True)
    #: epochs that had fewer copies than asked for when this object committed; of MAP partitions each map has one
    under_replicated: int = field(default=0, init=False)
    _manifest: Manifest_co | None = field(default=None, repr=False, kw_only=True)

    #: what a manifest of this kind is; those that the process keeps, and how many
    _MANIFEST: ClassVar[type[AnyManifest]]
    _manifests: ClassVar[OrderedDict[ShuffleKey, Any]]
    _MANIFESTS_MAX: ClassVar[int]

    def dropped_error(self) -> HoldfastError | None:
        """Return the masters' error if the shuffle was dropped, else None."""
        request = pb.GetManifestRequest(key=key_message(self.key), holder=self.ticket.holder)
        try:
            self._call("Shuffles/GetManifest", request)
        except HoldfastError as error:
            return error if isinstance(error, GiveUpError) else None
        return None

    def manifest(self) -> Manifest_co:
        """Return the manifest; waits up to 60 s for the commit."""
        found: Manifest_co | None = self._manifests.get(self.key)
        if found is None:
            found = self._manifest or self._fetch_manifest()
            found = keep(self._manifests, self.key, found, self._MANIFESTS_MAX)
            read_state_of(self.ticket).learn(found.sights)
        self._manifest = found
        return found

    async def newer_manifest(self) -> Manifest_co:
        """Fetch the current manifest; runs on the loop."""
        found = await self._poll_manifest()
        self._manifests.pop(self.key, None)
        self._manifest = keep(self._manifests, self.key, found, self._MANIFESTS_MAX)
        return found

    def _fetch_manifest(self) -> Manifest_co:
        return runtime().run(self._poll_manifest())

    def forget_manifest(self) -> None:
        """Fetch the manifest again at its next use."""

    def unregister(self) -> None:
        """Drop the shuffle: workers delete its files."""
        request = pb.UnregisterShuffleRequest(key=key_message(self.key), holder=self.ticket.holder)
        self._call("Shuffles/UnregisterShuffle", request)

    async def _poll_manifest(self, *, offers_winners: bool = False) -> Manifest_co:
        """Ask until the shuffle is committed, for up to COMMIT_WAIT_SECONDS; raises what the masters refuse."""
        wait_ms = min(LONG_POLL_MS_MAX, 5_000)
        request = pb.GetManifestRequest(
            key=key_message(self.key), wait_ms=wait_ms, holder=self.ticket.holder, offers_winners=offers_winners
        )
        end = asyncio.get_running_loop().time() + COMMIT_WAIT_SECONDS
        deadline_s = wait_ms / 1e3 + _ANSWER_SECONDS
        reply: pb.GetManifestReply | None = None
        with said(f"the commit of shuffle {self.key}"):
            while reply is None:
                try:
                    reply = await runtime().call(self.ticket, "Shuffles/GetManifest", request, deadline_s)
                except RetryError as error:
                    if error.status is not Status.NOT_COMMITTED or asyncio.get_running_loop().time() > end:
                        raise
        if reply.partitions != self.partitions:
            raise GiveUpError(f"shuffle {self.key} has {reply.partitions} partitions, not {self.partitions}")
        addresses, sights = known_addresses(reply.workers), sights_of(reply.workers)
        kind: Any = self._MANIFEST
        found: Manifest_co = kind(reply.winners_array, reply.manifest_array, addresses, sights)
        return found

    def _say_winners(self, winners: bytes, deadline_s: float = 30.0, waiting: str = "") -> None:
        """Commit these winners, and log missing copies."""
        request = pb.CommitRequest(key=key_message(self.key), winners_array=winners, holder=self.ticket.holder)
        reply: pb.CommitReply = self._call("Shuffles/Commit", request, deadline_s, waiting)
        self.under_replicated = reply.under_replicated
        if reply.under_replicated:
            log_event(
                LogEvent.SHUFFLE_UNDER_REPLICATED,
                shuffle=self.key,
                epochs=reply.under_replicated,
                awaited=reply.awaited,
                waits_for=list(reply.waits_for),
            )

    def _call(self, method: str, request: Any, deadline_s: float = 30.0, waiting: str = "") -> Any:
        """`waiting` names what a long call waits for, for the log."""
        try:
            return runtime().run(runtime().call(self.ticket, method, request, deadline_s, waiting))
        except HoldfastError as error:
            raise error.reworded(explain(error, self.ticket.endpoints)) from error

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        found = self._manifest
        if found is not None and len(found.winners_array) + len(found.manifest_array) > MANIFEST_CARRIED_BYTES_MAX:
            state["_manifest"] = None
        return state

    def __repr__(self) -> str:
        """Without what only writers and readers need."""
        shape = ", ".join(f"{name}={value}" for name, value in self._shape().items()) or "to read"
        return f"{type(self).__name__}({self.key}, {shape})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        known = {"partitions": self.partitions, **self._shape(), "under_replicated": self.under_replicated}
        return table(f"{type(self).__name__} {self.key}", known.items())

    def _shape(self) -> dict[str, object]:
        """What was asked for, by name; empty where it was opened to be read."""
        raise NotImplementedError
