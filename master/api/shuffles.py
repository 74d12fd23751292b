"""The service Shuffles: what applications and readers call.

Rules: methods have the names of holdfast.proto in snake case, take its request and return its reply, or raise a
HoldfastError. Every call that names an instance renews its lease first. Called through handlers.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

from holdfast.common.errors import ForbiddenError, GiveUpError, RetryError
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.reduce_layouts import ReduceLocations
from holdfast.common.ids import Generation, ShuffleKey, WorkerId, shuffle_name
from holdfast.common.limits import COPIES_MAX, LONG_POLL_MS_MAX, PARTITIONS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import TokenKind, share_owner
from holdfast.common.statuses import Status
from holdfast.common.version import VERSION
from holdfast.common.worker_states import LOST
from holdfast.master.api.access import CALLER, HOST, check_owner
from holdfast.master.api.registry import Registry
from holdfast.master.api.statuses import bad_request
from holdfast.master.api.winners import WinnersCheck
from holdfast.master.control.late import unsealed_copies
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.control.reviving import UNUSABLE_MAX, Reviver
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.commit import Seen
from holdfast.master.core.seals import may_have_lost
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import KIND_MAP, KIND_REDUCE, Application, Shuffle, Worker
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader, gone
from holdfast.master.leader.uploads import submit, upload_name
from holdfast.master.observe.counts import fallback_reason
from holdfast.master.observe.masters import Masters
from holdfast.master.placement.groups import Adhering
from holdfast.master.placement.policy import Candidates, too_few_acknowledge
from holdfast.master.state_machine.codec import from_message

#: Workers that an answer names.
_NAMED_MAX = 10
#: Of one report of shuffles that fell back, and characters of its texts.
_FALLBACKS_MAX, _TEXT_MAX = 1_000_000, 500


class Shuffles:
    """Handlers of the service Shuffles."""

    def __init__(
        self,
        leader: Leader,
        masters: Masters,
        registry: Registry,
        fleet: Fleet,
        locations: Locations,
        sealing: Sealing,
        reviver: Reviver,
        asker: Asker,
    ) -> None:
        self._leader = leader
        self._masters = masters
        self._registry = registry
        self._fleet = fleet
        self._locations = locations
        self._sealing = sealing
        self._reviver = reviver
        self._asker = asker
        self._check = WinnersCheck()

    async def discover(self, request: pb.DiscoverRequest) -> pb.DiscoverReply:
        """Return the identity of this master and the leader; every master answers."""
        status = self._leader.node.status()
        leader = self._leader.http_of(status.leader)
        return pb.DiscoverReply(
            cluster_id=self._leader.config.cluster.id,
            name=self._leader.config.master.name,
            leader_http=leader,
            leader_grpc=self._masters.grpc if self._leader.serving else "",
            masters=self._masters.infos(status, self._leader.serving),
            raft_index=status.applied_index,
            version=VERSION,
        )

    async def register_application(self, request: pb.RegisterApplicationRequest) -> pb.RegisterApplicationReply:
        """Create an application, or add a lease to it."""
        lease_ms = request.lease_ms or self._leader.config.lease.application.ms
        user, caller = request.user, CALLER.get()
        if caller is not None and caller.kind is TokenKind.USER:
            user = caller.subject.decode("utf-8", "replace")
        self._check_owner(self._leader.peek(lambda state: state.applications.get(request.instance)))
        self._registry.quotas.check_user(request.instance, user)
        body = from_message(cmd.RegisterApplication, request, user=user, lease_ms=lease_ms)
        await self._leader.command("Shuffles/RegisterApplication", request, body)
        # Two users may have drawn one instance at the same time; the second gets the error now.
        application = await self._leader.renew(request.instance, request.holder)
        self._check_owner(application)
        return pb.RegisterApplicationReply(
            cluster_id=self._leader.config.cluster.id,
            raft_index=self._leader.index(),
            lease_ms=lease_ms,
            token=self._token(application),
        )

    async def attach(self, request: pb.AttachRequest) -> pb.AttachReply:
        """Add a lease to an application that another driver created."""
        if not request.instance and not request.name:
            raise bad_request("name the application, or give its instance")
        lease_ms = request.lease_ms or self._leader.config.lease.application.ms
        instance = request.instance or await self._newest_of_caller(request.name)
        if instance:
            self._check_owner(await self._leader.find(lambda state: state.applications.get(instance)))
        body = cmd.Attach(instance, request.name, lease_ms, request.holder)
        answer = await self._leader.command("Shuffles/Attach", request, body)
        application = await self._leader.renew(answer.subject, request.holder)
        return pb.AttachReply(
            instance=application.instance,
            name=application.name,
            lease_ms=lease_ms,
            raft_index=self._leader.index(),
            token=self._token(application),
        )

    async def renew_lease(self, request: pb.RenewLeaseRequest) -> pb.RenewLeaseReply:
        """Renew one lease; a holder without a lease gets an error."""
        application = await self._leader.renew(request.instance, request.holder)
        if request.holder and application.lease(request.holder) is None:
            confirmed = await self._leader.confirmed(lambda state: state.applications.get(request.instance))
            if confirmed is None or confirmed.lease(request.holder) is None:
                raise GiveUpError("the lease of this holder has expired; attach again", status=Status.APPLICATION_GONE)
        return pb.RenewLeaseReply(raft_index=self._leader.index(), token=self._token(application))

    async def detach(self, request: pb.DetachRequest) -> pb.DetachReply:
        """End a lease."""
        await self._leader.command("Shuffles/Detach", request, cmd.Detach(request.instance, request.holder))
        return pb.DetachReply()

    async def report_fallback(self, request: pb.ReportFallbackRequest) -> pb.ReportFallbackReply:
        """Count shuffles that became Spark's own."""
        reason, shuffles = fallback_reason(request.reason), min(max(1, request.shuffles), _FALLBACKS_MAX)
        self._leader.fallbacks[reason] += shuffles
        name, text = request.name[:_TEXT_MAX], request.text[:_TEXT_MAX]
        self._leader.events.tell(LogEvent.SHUFFLE_FALLBACK, application=name, count=shuffles, kind=reason, reason=text)
        return pb.ReportFallbackReply()

    async def register_shuffle(self, request: pb.RegisterShuffleRequest) -> pb.RegisterShuffleReply:
        """Place a shuffle and record its assignment; again for a known key: where its partitions are now."""
        key = key_in(request.key)
        await self._leader.renew(key.instance, request.holder)
        if request.kind not in (KIND_MAP, KIND_REDUCE):
            raise bad_request("kind is PARTITION_KIND_MAP or PARTITION_KIND_REDUCE")
        if not 1 <= request.partitions <= PARTITIONS_MAX:
            raise bad_request(f"a shuffle has 1 to {PARTITIONS_MAX} partitions, not {request.partitions}")
        if request.copies > COPIES_MAX:
            raise bad_request(f"copies are 1 to {COPIES_MAX}, not {request.copies}")
        if len(request.unusable_workers) > UNUSABLE_MAX:
            raise bad_request(f"a registration names at most {UNUSABLE_MAX} workers that cannot be used")
        await self._leader.state_id()
        if request.to_write:
            key, request = await self._that_takes_data(key, request)
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        known = shuffle is not None
        if shuffle is None or not _same_shape(shuffle, request) or self._blames_more(shuffle, request.unusable_workers):
            self._registry.quotas.check(key)
            await self._open(key, request, shuffle)
            shuffle = self._leader.peek(lambda state: state.shuffle(key)) or await self._shuffle(key)
        else:
            shuffle = await self._shuffle(key)  # nothing was proposed, and another master may have dropped it by now
        array, workers = shuffle.assignment, await self._workers(shuffle)
        fresh = not shuffle.committed_ms and not known
        if shuffle.kind == KIND_REDUCE:
            now = await self._locations.now(shuffle)
            array, workers = now.array, now.workers
        if fresh:
            self._asker.announce(shuffle.key, workers, shuffle.copies)
        return pb.RegisterShuffleReply(
            assignment_array=array,
            workers=self._addresses(workers),
            raft_index=self._leader.index(),
            copies=shuffle.copies,
            generation=key.generation,
            state=shuffle.key.state,
            lost_workers=self._lost_workers() if shuffle.copies < shuffle.copies_wanted else (),
        )

    def _lost_workers(self) -> list[str]:
        return self._leader.peek(
            lambda state: _names(one for each in sorted(state.not_alive) if (one := state.workers[each]).state == LOST)
        )

    async def revive(self, request: pb.ReviveRequest) -> pb.ReviveReply:
        """Return new places for partitions whose epoch failed."""
        key = key_in(request.key)
        await self._leader.renew(key.instance, request.holder)
        shuffle = self._leader.peek(lambda state: state.shuffle(key)) or await self._shuffle(key)
        locations, limits_met = await self._reviver.revive(shuffle, request)
        workers = self._addresses({worker for each in locations for worker in each.workers})
        return pb.ReviveReply(locations=locations, workers=workers, raft_index=self._leader.index(), room=limits_met)

    async def commit(self, request: pb.CommitRequest) -> pb.CommitReply:
        """Commit a generation: the winners, and for REDUCE partitions what the workers have sealed."""
        key = key_in(request.key)
        application = await self._leader.renew(key.instance, request.holder)
        shuffle = await self._shuffle(key)
        winners = request.winners_array
        seen = await self._check.see(shuffle, winners, application.user or key.instance)
        if shuffle.kind == KIND_REDUCE:
            await self._sealing.commit(shuffle, winners, seen)
        else:
            await self._commit_maps(request, shuffle, winners, seen)
        final = self._leader.peek(lambda state: state.shuffle(key)) or shuffle
        away = await unsealed_copies(final) if final.awaited else {}
        return pb.CommitReply(
            raft_index=self._leader.index(),
            lost=final.lost,
            under_replicated=final.under_replicated,
            awaited=final.awaited,
            waits_for=self._leader.peek(lambda state: _names(map(state.workers.get, sorted(away)))),
        )

    async def get_manifest(self, request: pb.GetManifestRequest) -> pb.GetManifestReply:
        """Return the manifest of a committed generation, waiting for the commit at most `wait_ms`."""
        key = key_in(request.key)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_ms, LONG_POLL_MS_MAX) / 1000
        await self._leader.renew(key.instance, request.holder)
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        while shuffle is None or not shuffle.committed_ms:
            left = end - loop.time()
            offers = request.offers_winners and not (shuffle is not None and self._sealing.begun(shuffle.key))
            if shuffle is not None and left > 0 and not offers:
                await self._leader.waiters.wait(key, left)
                self._leader.require()
            shuffle = await self._shuffle(key)
            if shuffle.committed_ms:
                break
            if request.offers_winners and not self._sealing.begun(shuffle.key):
                raise GiveUpError(f"{key} has no commit pending; commit it", status=Status.NEED_WINNERS)
            if loop.time() >= end:
                raise RetryError(f"{key} is not committed yet; ask again", status=Status.NOT_COMMITTED)
        else:
            # A leader that was replaced a moment ago may have what is dropped by now.
            shuffle = await self._shuffle(key)
        self._leader.readers.asked(shuffle.key, HOST.get(), self._leader.now_ms())
        return pb.GetManifestReply(
            kind=pb.PARTITION_KIND_MAP if shuffle.kind == KIND_MAP else pb.PARTITION_KIND_REDUCE,
            partitions=shuffle.partitions,
            winners_array=shuffle.winners,
            manifest_array=shuffle.manifest,
            state=shuffle.key.state,
            workers=self._addresses(await self._workers(shuffle)),
            raft_index=self._leader.index(),
        )

    async def unregister_shuffle(self, request: pb.UnregisterShuffleRequest) -> pb.UnregisterShuffleReply:
        """Drop generations up to the one named."""
        key = key_in(request.key)
        await self._leader.renew(key.instance, request.holder)
        answer = await self._leader.command("Shuffles/UnregisterShuffle", request, cmd.Unregister(key))
        return pb.UnregisterShuffleReply(dropped=answer.value)

    def _token(self, application: Application) -> str:
        """A new token for an application whose caller was found to be its owner; "" without security."""
        security = self._leader.security
        if security is None:
            return ""
        subject = application.instance + share_owner(application.user.encode())
        return security.keeper.mint(TokenKind.APPLICATION, subject, int(time.time()), security.token_life_s)

    @staticmethod
    def _check_owner(application: Application | None) -> None:
        """Raise what an unknown instance gets, too, unless the caller may have a token for it."""
        if application is None:
            return
        try:
            check_owner(CALLER.get(), application.user)
        except ForbiddenError:
            raise gone(application.instance) from None

    async def _newest_of_caller(self, name: str) -> bytes:
        """The newest application of that name that the caller owns; b"" where apply may choose among all."""
        caller = CALLER.get()
        if caller is None or caller.kind is not TokenKind.USER:
            return b""
        user = caller.subject.decode("utf-8", "replace")
        found: Application | None = await self._leader.confirmed(lambda state: state.newest_named(name, user))
        if found is None:
            raise GiveUpError(f'no application named "{name}" is alive', status=Status.APPLICATION_GONE)
        return found.instance

    async def _that_takes_data(
        self, key: ShuffleKey, request: pb.RegisterShuffleRequest
    ) -> tuple[ShuffleKey, pb.RegisterShuffleRequest]:
        """Return the newest generation that is not final, at or above `key`, and the request for just that one.

        One that is open after a restore may be final for the workers: the next one replaces it.

        The call's number is removed: the same request may mean a later generation later, and its recorded answer would
        not fit. Opening is idempotent by the generation, so nothing is lost with it.
        """

        def read(state: State) -> int:
            highest = state.head(key.instance, key.shuffle)
            if highest is None or highest < key.generation:
                return key.generation
            newest = state.shuffle(ShuffleKey(key.instance, key.shuffle, Generation(highest)))
            takes = newest is not None and not newest.committed_ms and newest.key.state == state.state_id
            return highest if takes else highest + 1

        generation = Generation(await self._leader.confirmed(read))
        exact = pb.RegisterShuffleRequest()
        exact.CopyFrom(request)
        exact.key.generation = generation
        exact.ClearField("call")
        exact.key.ClearField("state")
        return ShuffleKey(key.instance, key.shuffle, generation), exact

    async def _shuffle(self, key: ShuffleKey) -> Shuffle:
        """Return the record of a generation. Raises what a confirmed leader says of one that is not there."""

        def read(state: State) -> tuple[Shuffle | None, bool, bool]:
            return (
                state.shuffle(key),
                key.instance in state.applications,
                state.head(key.instance, key.shuffle) is not None,
            )

        found, alive, known = await self._leader.confirmed(read)
        if found is not None:
            return found
        if not alive:
            raise gone(key.instance)
        if not known:
            raise GiveUpError(
                f"{shuffle_name(key.instance.hex()[:8], key.shuffle)} was never registered",
                status=Status.UNKNOWN_SHUFFLE,
            )
        raise GiveUpError(f"{key} was dropped, or never registered", status=Status.UNKNOWN_GENERATION)

    async def _open(self, key: ShuffleKey, request: pb.RegisterShuffleRequest, known: Shuffle | None) -> None:
        """Have a generation recorded; one that is there with another shape is refused by apply."""
        copies = request.copies or 1
        body = cmd.RegisterShuffle(
            key=key,
            kind=request.kind,
            partitions=request.partitions,
            maps=request.maps,
            copies_wanted=copies,
            copies=copies,
            ack=request.ack,
            ack_copies=request.ack_copies,
            assignment=b"",
            lost_before=request.failed_before and await self._lost_before(key),
            avoid=self._known(request.unusable_workers),
        )
        if known is not None:
            assignment, placed = known.assignment, known.copies
        else:
            # A job that runs already cannot change what it asks for; its first generation was taken.
            if not key.generation and (problem := too_few_acknowledge(self._fleet.policy, copies, request.ack_copies)):
                raise bad_request(problem)
            candidates = self._fleet.candidates(body)
            if body.kind == KIND_MAP:
                assignment, placed, adhering = self._place_maps(candidates, copies)
            else:
                assignment, placed, adhering = await self._place_partitions(candidates, body.partitions, copies)
            self._fleet.chosen("registered", body, candidates, adhering)
        upload = upload_name(len(assignment), repr(key).encode(), assignment)
        body = replace(body, copies=placed, assignment=b"" if upload else assignment, upload=upload)
        command = self._leader.numbered("Shuffles/RegisterShuffle", request, body)
        self._leader.expect(await submit(self._leader, command, upload, assignment))
        self._fleet.placed()

    def _known(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Those of these workers that ever registered, in order."""
        return self._leader.peek(lambda state: tuple(sorted(state.workers.keys() & set(numbers))))

    def _blames_more(self, shuffle: Shuffle, numbers: Iterable[int]) -> bool:
        """Whether an open generation is to avoid workers that it does not avoid yet."""
        return not shuffle.committed_ms and not set(self._known(numbers)).issubset(shuffle.avoid)

    def _place_maps(self, candidates: Candidates, copies: int) -> tuple[bytes, int, Adhering]:
        """Return the assignment of a shuffle of MAP partitions, how many copies it has, and how far neighbours of the
        ring are apart as wished."""
        ring = self._fleet.new_ring(candidates, copies)
        number = len(ring.workers)
        adhering = Adhering(strict=number) if ring.adheres else Adhering(failed=number)
        array = MapAssignment(tuple(WorkerId(worker) for worker in ring.workers), ring.copies).encode()
        return array, ring.copies, adhering

    async def _place_partitions(
        self, candidates: Candidates, partitions: int, copies: int
    ) -> tuple[bytes, int, Adhering]:
        """Return the assignment of a shuffle of REDUCE partitions, how many copies it has, and how far partitions are
        as wished."""
        placing = self._fleet.placing(candidates, partitions, copies)

        def work() -> tuple[bytes, int, Adhering]:
            found = placing()
            return ReduceLocations.encode_first(found.groups), found.copies, found.adhering

        return await off_loop(partitions, work)

    async def _lost_before(self, key: ShuffleKey) -> bool:
        """Whether the generation before this one, of REDUCE partitions and not committed, may have lost data."""
        before = ShuffleKey(key.instance, key.shuffle, Generation(max(key.generation - 1, 0)))
        shuffle, workers = self._leader.peek(lambda state: (state.shuffle(before), dict(state.workers)))
        if shuffle is None or shuffle.kind != KIND_REDUCE or not key.generation:
            return False
        ack = shuffle.ack
        return await self._locations.with_epochs(shuffle, lambda epochs: may_have_lost(epochs, workers, ack))

    async def _commit_maps(self, request: pb.CommitRequest, shuffle: Shuffle, winners: bytes, seen: Seen) -> None:
        strangers = seen.workers.difference(MapAssignment.decode(shuffle.assignment).workers)
        if strangers:
            raise bad_request(
                f"winners name workers {sorted(strangers)[:5]}, which the assignment of {shuffle.key} does not"
            )
        upload = upload_name(len(winners), repr(shuffle.key).encode(), seen.digest)
        body = cmd.Commit(
            key=shuffle.key,
            winners=b"" if upload else winners,
            upload=upload,
            winners_digest=seen.digest,
            maps=seen.maps,
            partitions=seen.partitions,
            data_bytes=seen.data_bytes,
            under_replicated=sum(seen.by_copies[: shuffle.copies_wanted - 1]),
        )
        request.winners_array = seen.digest  # in their place, to detect a retry: they may be long
        command = self._leader.numbered("Shuffles/Commit", request, body)
        self._leader.expect(await submit(self._leader, command, upload, winners))
        if not shuffle.committed_ms:
            self._leader.counts.commits_under_replicated_epochs += body.under_replicated

    async def _workers(self, shuffle: Shuffle) -> Iterable[int]:
        """Return the workers that the readers of a shuffle ask; the writers too, of MAP partitions."""
        if shuffle.kind == KIND_MAP:
            return MapAssignment.decode(shuffle.assignment).workers
        return await self._locations.manifest_workers(shuffle) if shuffle.committed_ms else ()

    def _addresses(self, numbers: Iterable[int]) -> list[pb.WorkerAddress]:
        default = self._fleet.policy.racks.default
        workers = self._leader.peek(lambda state: [state.workers[each] for each in numbers if each in state.workers])
        places = self._fleet.places_now()
        return [
            pb.WorkerAddress(
                worker=worker.id,
                incarnation=worker.incarnation,
                host=worker.host,
                address=worker.data_address,
                alive=worker.alive,
                place="" if (place := places[worker.id]) == default else place,
                draining=bool(worker.draining_ms),
            )
            for worker in workers
        ]


def _same_shape(shuffle: Shuffle, request: pb.RegisterShuffleRequest) -> bool:
    copies = request.copies or 1
    named = (request.kind, request.partitions, copies, request.ack, request.ack_copies or copies)
    known = (shuffle.kind, shuffle.partitions, shuffle.copies_wanted, shuffle.ack, shuffle.ack_copies)
    return named == known and request.maps in (0, shuffle.maps)


def _names(workers: Iterable[Worker | None]) -> list[str]:
    """The first names, for people."""
    return [worker.name for worker in workers if worker is not None][:_NAMED_MAX]
