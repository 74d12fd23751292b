"""The service Shuffles: what applications and readers call.

Rules: methods have the names of holdfast.proto in snake case, take its request and return its reply, or raise a
HoldfastError. Every call that names an instance renews its lease first. Called through handlers.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass

from holdfast.common.errors import GiveUpError, HoldfastError, NoRoomError, ProtocolError, RetryError, Status
from holdfast.common.ids import ShuffleKey, WorkerId
from holdfast.common.layouts import MapAssignment, MapWinners
from holdfast.common.limits import (
    COMMAND_PART_BYTES,
    COMMAND_PARTS_MAX,
    COPIES_MAX,
    KIB,
    LONG_POLL_MS_MAX,
)
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.version import VERSION
from holdfast.master.core import commands as cmd
from holdfast.master.core.records import KIND_MAP, Answer, Shuffle, Worker
from holdfast.master.core.state import State
from holdfast.master.placement.ring import map_ring
from holdfast.master.service.leader import Leader, gone, key_of
from holdfast.master.service.masters import Masters
from holdfast.master.service.registry import Registry

#: Winners larger than this are checked in a thread, so that other calls go on.
_INLINE_BYTES = 64 * KIB
#: Large winners checked at once: each may take 256 MiB inflated.
_CHECKS_AT_ONCE = 2
#: How often the parts of a large call are sent again when some were missing.
_PART_TRIES = 3


class Shuffles:
    """Handlers of the service Shuffles."""

    def __init__(self, leader: Leader, masters: Masters, registry: Registry) -> None:
        self._leader = leader
        self._masters = masters
        self._registry = registry
        self._checks = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def discover(self, request: pb.DiscoverRequest) -> pb.DiscoverReply:
        """Say who this master is and who leads; every master answers."""
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
        body = cmd.RegisterApplication(request.instance, request.name, request.user, lease_ms, request.holder)
        await self._leader.command("Shuffles/RegisterApplication", request, body)
        await self._leader.renew(request.instance, request.holder)
        return pb.RegisterApplicationReply(
            cluster_id=self._leader.config.cluster.id, raft_index=self._leader.index(), lease_ms=lease_ms
        )

    async def attach(self, request: pb.AttachRequest) -> pb.AttachReply:
        """Add a lease to an application that another driver created."""
        if not request.instance and not request.name:
            raise _bad("name the application, or give its instance")
        lease_ms = request.lease_ms or self._leader.config.lease.application.ms
        body = cmd.Attach(request.instance, request.name, lease_ms, request.holder)
        answer = await self._leader.command("Shuffles/Attach", request, body)
        application = await self._leader.renew(answer.subject, request.holder)
        return pb.AttachReply(
            instance=application.instance, name=application.name, lease_ms=lease_ms, raft_index=self._leader.index()
        )

    async def renew_lease(self, request: pb.RenewLeaseRequest) -> pb.RenewLeaseReply:
        """Renew one lease; a holder that has none any more is told so."""
        application = await self._leader.renew(request.instance, request.holder)
        if request.holder and application.lease(request.holder) is None:
            confirmed = await self._leader.confirmed(lambda state: state.applications.get(request.instance))
            if confirmed is None or confirmed.lease(request.holder) is None:
                raise GiveUpError("this holder's lease ended; attach again", status=Status.APPLICATION_GONE)
        return pb.RenewLeaseReply(raft_index=self._leader.index())

    async def detach(self, request: pb.DetachRequest) -> pb.DetachReply:
        """End a lease."""
        await self._leader.command("Shuffles/Detach", request, cmd.Detach(request.instance, request.holder))
        return pb.DetachReply()

    async def register_shuffle(self, request: pb.RegisterShuffleRequest) -> pb.RegisterShuffleReply:
        """Place a shuffle and record its assignment; again for a known key: the recorded one."""
        key = key_of(request.key)
        await self._leader.renew(key.instance, request.holder)
        if request.kind != KIND_MAP:
            raise _bad("kind is PARTITION_KIND_MAP; this version serves no other")
        copies = request.copies or 1
        if copies > COPIES_MAX:
            raise _bad(f"copies are 1 to {COPIES_MAX}, not {copies}")
        body = self._placed(key, request, copies)
        await self._leader.command("Shuffles/RegisterShuffle", request, body)
        shuffle = await self._shuffle(key)
        return pb.RegisterShuffleReply(
            assignment_array=shuffle.assignment,
            workers=self._addresses(shuffle.assignment),
            raft_index=self._leader.index(),
            copies=shuffle.copies,
        )

    async def commit(self, request: pb.CommitRequest) -> pb.CommitReply:
        """Record the winners of a generation."""
        key = key_of(request.key)
        await self._leader.renew(key.instance, request.holder)
        shuffle = await self._shuffle(key)
        seen = await self._inspect(request.winners_array)
        strangers = seen.workers.difference(MapAssignment.decode(shuffle.assignment).workers)
        if strangers:
            raise _bad(f"winners name workers {sorted(strangers)[:5]}, which the assignment of {key} does not")
        body = cmd.Commit(
            key=key,
            winners=request.winners_array,
            upload=b"",
            winners_digest=seen.digest,
            maps=seen.maps,
            partitions=seen.partitions,
            data_bytes=seen.data_bytes,
        )
        if len(request.winners_array) <= COMMAND_PART_BYTES:
            await self._leader.command("Shuffles/Commit", request, body)
        else:
            await self._commit_in_parts(request, body)
        return pb.CommitReply(raft_index=self._leader.index())

    async def get_manifest(self, request: pb.GetManifestRequest) -> pb.GetManifestReply:
        """Return the manifest of a committed generation, waiting for the commit at most `wait_ms`."""
        key = key_of(request.key)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_ms, LONG_POLL_MS_MAX) / 1000
        await self._leader.renew(key.instance, request.holder)
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        while shuffle is None or not shuffle.committed_ms:
            left = end - loop.time()
            if shuffle is not None and left > 0:
                await self._leader.waiters.wait(key, left)
                self._leader.require()
            shuffle = await self._shuffle(key)
            if not shuffle.committed_ms and loop.time() >= end:
                raise RetryError(f"{key} is not committed yet; ask again", status=Status.NOT_COMMITTED)
        return pb.GetManifestReply(
            kind=pb.PARTITION_KIND_MAP,
            partitions=shuffle.partitions,
            winners_array=shuffle.winners,
            workers=self._addresses(shuffle.assignment),
            raft_index=self._leader.index(),
        )

    async def unregister_shuffle(self, request: pb.UnregisterShuffleRequest) -> pb.UnregisterShuffleReply:
        """Drop generations up to the one named."""
        key = key_of(request.key)
        await self._leader.renew(key.instance, request.holder)
        answer = await self._leader.command("Shuffles/UnregisterShuffle", request, cmd.Unregister(key))
        return pb.UnregisterShuffleReply(dropped=answer.value)

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
                f"shuffle {key.shuffle} of application {key.instance.hex()[:8]} was never registered",
                status=Status.UNKNOWN_SHUFFLE,
            )
        raise GiveUpError(f"{key} was dropped, or never registered", status=Status.UNKNOWN_GENERATION)

    def _placed(self, key: ShuffleKey, request: pb.RegisterShuffleRequest, copies: int) -> cmd.RegisterShuffle:
        """Return the command; a shuffle that is registered keeps its assignment."""
        known = self._leader.peek(lambda state: state.shuffle(key))
        if known is not None:
            assignment, placed = known.assignment, known.copies
        else:
            ring = map_ring(self._registry.candidates(), copies, secrets.token_bytes(8))
            if not ring.workers:
                raise NoRoomError(
                    "no worker is alive with a directory that takes data; start one, see `holdfast workers`"
                )
            placed = ring.copies
            assignment = MapAssignment(tuple(WorkerId(worker) for worker in ring.workers), placed).encode()
        return cmd.RegisterShuffle(
            key=key,
            kind=KIND_MAP,
            partitions=request.partitions,
            maps=request.maps,
            copies_wanted=copies,
            copies=placed,
            ack=request.ack,
            assignment=assignment,
        )

    def _addresses(self, assignment: bytes) -> list[pb.WorkerAddress]:
        numbers = MapAssignment.decode(assignment).workers

        def read(state: State) -> list[Worker]:
            return [state.workers[number] for number in numbers if number in state.workers]

        return [
            pb.WorkerAddress(
                worker=worker.id,
                incarnation=worker.incarnation,
                host=worker.host,
                address=worker.data_address,
                alive=worker.alive,
            )
            for worker in self._leader.peek(read)
        ]

    async def _inspect(self, winners: bytes) -> _Seen:
        if len(winners) <= _INLINE_BYTES:
            return _inspect(winners)
        async with self._checks:
            return await asyncio.get_running_loop().run_in_executor(None, _inspect, winners)

    async def _commit_in_parts(self, request: pb.CommitRequest, body: cmd.Commit) -> None:
        """Send winners that are too large for one command as parts, then the commit that names them."""
        winners = body.winners
        parts = [winners[at : at + COMMAND_PART_BYTES] for at in range(0, len(winners), COMMAND_PART_BYTES)]
        if len(parts) > COMMAND_PARTS_MAX:
            raise ProtocolError(f"winners of {len(winners)} bytes are too large", status=Status.TOO_LARGE)
        upload = hashlib.blake2b(repr(body.key).encode() + body.winners_digest, digest_size=16).digest()
        final = cmd.Commit(
            key=body.key,
            winners=b"",
            upload=upload,
            winners_digest=body.winners_digest,
            maps=body.maps,
            partitions=body.partitions,
            data_bytes=body.data_bytes,
        )
        command = self._leader.numbered("Shuffles/Commit", request, final)
        answer = Answer()
        for _ in range(_PART_TRIES):
            for number, part in enumerate(parts):
                answer = await self._leader.proposer.submit(cmd.Command(cmd.Part(upload, number, len(parts), part)))
                self._leader.expect(answer)
            answer = await self._leader.proposer.submit(command)
            if answer.status != Status.BUSY:
                break
        self._leader.expect(answer)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a winners array holds."""

    maps: int
    partitions: int
    data_bytes: int
    workers: frozenset[int]
    digest: bytes


def _inspect(data: bytes) -> _Seen:
    """Check a winners array and digest its content, so that two encodings of the same winners are equal."""
    try:
        winners = MapWinners.decode(data)
    except HoldfastError as error:
        status = error.status if error.status is Status.TOO_LARGE else Status.BAD_REQUEST
        raise ProtocolError(f"winners_array: {error}", status=status) from error
    digest = hashlib.blake2b(f"{winners.partitions} {len(winners.maps)}".encode(), digest_size=16)
    workers: set[int] = set()
    for winner in winners.maps:
        workers.update(winner.workers)
        digest.update(
            f"{winner.attempt} {winner.epoch} {winner.workers} {winner.batches} {winner.size_bytes} ".encode()
            + winner.partitions
        )
    data_bytes = min(sum(winner.size_bytes for winner in winners.maps), (1 << 64) - 1)
    return _Seen(len(winners.maps), winners.partitions, data_bytes, frozenset(workers), digest.digest())


def _bad(message: str) -> ProtocolError:
    return ProtocolError(message, status=Status.BAD_REQUEST)
