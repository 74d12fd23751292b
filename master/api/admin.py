"""The service Admin: what people ask. Called through handlers.py."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace

from holdfast.common.agreement import settings_digests
from holdfast.common.config.config import Config
from holdfast.common.dfs.urls import parse_url
from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import UsageTotals
from holdfast.common.system.versions import versions
from holdfast.common.version import VERSION
from holdfast.master.api.access import CALLER, check_owner, is_owner
from holdfast.master.api.registry import Registry
from holdfast.master.api.statuses import bad_request
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.events import LEVELS
from holdfast.master.core.retention import Retention, retention_of
from holdfast.master.core.shuffle_sums import HostShare, OutputSizes, hosts_of
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.incomplete import incomplete_count
from holdfast.master.core.state.records import KIND_MAP, KIND_REDUCE, Application, Lease, Shuffle, Worker
from holdfast.master.core.state.state import Below, State, StateTables
from holdfast.master.fleet.fleet import Fleet, place_of
from holdfast.master.leader.handing_over import hand_over
from holdfast.master.leader.leader import Leader, gone
from holdfast.master.observe.adherence import AdherenceCount
from holdfast.master.observe.describing import HOSTS_MAX
from holdfast.master.observe.explaining import Explainer
from holdfast.master.observe.masters import Masters
from holdfast.master.raft.codec import ENTRY_VERSION, WIRE_VERSION
from holdfast.master.state_machine import codec, snapshot

_LIMIT_DEFAULT, _LIMIT_MAX = 1_000, 10_000
_U32 = struct.Struct("<I")
_NS_PER_MS = 1_000_000
#: Versions of what masters say to one another and keep.
_FORMATS = {"raft": str(WIRE_VERSION), "journal": str(ENTRY_VERSION), "state": str(codec.VERSION)}
#: Workers that an answer names for whom a commit waits.
_NAMED_MAX = 10
#: Looks at the state until one falls between two entries.
_LOOKS = 5


class Admin:
    """Handlers of the service Admin."""

    def __init__(
        self,
        leader: Leader,
        masters: Masters,
        registry: Registry,
        fleet: Fleet,
        explainer: Explainer,
        adherence: AdherenceCount,
        sealing: Sealing,
        load: Callable[[], Config],
    ) -> None:
        """`load` reads the configuration again; it may raise ConfigError."""
        self._leader = leader
        self._quotas = registry.quotas
        self._masters = masters
        self._fleet = fleet
        self._draining = registry.draining
        self._explainer = explainer
        self._adherence = adherence
        self._sealing = sealing
        self._load = load
        self._hashed: tuple[int, bytes] = (-1, b"")
        self._versions = {**versions(), **_FORMATS}

    async def status(self, request: pb.StatusRequest) -> pb.StatusReply:
        """Say how this master is; every master answers for itself."""
        config, node = self._leader.config, self._leader.node
        status, tables = node.status(), node.local(lambda machine: machine.capture())
        for _ in range(_LOOKS):
            if node.status().applied_index == status.applied_index:
                break
            status, tables = node.status(), node.local(lambda machine: machine.capture())
        every = [shuffle for below in tables.below.values() for shuffle in below.shuffles.values()]
        return pb.StatusReply(
            cluster_id=config.cluster.id,
            name=config.master.name,
            role=status.role,
            term=status.term,
            leader_http=self._leader.http_of(status.leader),
            commit_index=status.commit_index,
            applied_index=status.applied_index,
            snapshot_index=status.snapshot_index,
            log_entries=status.log_length,
            state_hash=await self._hash(tables),
            workers=sum(not worker.gone for worker in tables.workers.values()),
            workers_alive=sum(worker.alive for worker in tables.workers.values()),
            applications=len(tables.applications),
            shuffles=len(every),
            masters=self._masters.infos(status, self._leader.serving),
            faults=self._faults(),
            version=VERSION,
            dfs_url=str(parse_url(config.dfs.url)) if config.dfs.url else "",
            clock_ms=self._leader.now_ms(),
            settings=self._agreed(),
            versions=self._versions,
            under_replicated=sum(shuffle.under_replicated for shuffle in every),
            awaited=sum(shuffle.awaited for shuffle in every if shuffle.under_replicated),
            adhering_strict=self._adherence.found.strict,
            adhering_soft=self._adherence.found.soft,
            adhering_failed=self._adherence.found.failed,
            open_epochs_short=self._adherence.short,
            **asdict(self._leader.short),
        )

    async def list_workers(self, request: pb.ListWorkersRequest) -> pb.ListWorkersReply:
        """Return all workers with what their last heartbeat said."""
        workers = await self._leader.confirmed(lambda state: list(state.workers.values()))
        return pb.ListWorkersReply(workers=[self._worker(worker) for worker in workers])

    async def explain_placement(self, request: pb.ExplainPlacementRequest) -> pb.ExplainPlacementReply:
        """Return where a shuffle's partitions are, and why."""
        reply = await self._explainer.explain(request)
        numbers = {one for each in reply.locations for one in each.workers}
        workers = self._leader.peek(lambda state: [each for each in state.workers.values() if each.id in numbers])
        for worker in workers:
            info = self._worker(worker)
            del info.directories[:]
            info.counters.clear()
            reply.workers.append(info)
        return reply

    async def reload(self, request: pb.ReloadRequest) -> pb.ReloadReply:
        """Read [placement] again; every master does so for itself."""
        try:
            changed = await self._fleet.reload(self._load)
        except ConfigError as error:
            self._leader.events.tell(LogEvent.CONFIGURATION_REFUSED, section="placement", reason=error)
            raise bad_request(f"nothing has changed: {error}") from error
        return pb.ReloadReply(name=self._leader.config.master.name, changed=changed)

    async def list_shuffles(self, request: pb.ListShufflesRequest) -> pb.ListShufflesReply:
        """Return shuffles of one application or of all that are asked for, at most `limit`, and how many there are."""
        limit = min(request.limit or _LIMIT_DEFAULT, _LIMIT_MAX)
        chosen = request.user or request.state or request.HasField("shuffle")

        def wanted(state: State, shuffle: Shuffle) -> bool:
            of_user = request.user in ("", state.applications[shuffle.key.instance].user)
            in_state = request.state in ("", _state_of(shuffle))
            return of_user and in_state and (not request.HasField("shuffle") or shuffle.key.shuffle == request.shuffle)

        def read(state: State) -> tuple[list[Shuffle], int, dict[bytes, Application], dict[bytes, str]]:
            every: Iterable[Shuffle] = state.every_shuffle()
            total = state.shuffle_count
            if request.instance:
                below = state.below.get(request.instance, Below())
                every, total = below.shuffles.values(), len(below.shuffles)
            if chosen:
                every = matching = [each for each in every if wanted(state, each)]
                total = len(matching)
            found = list(itertools.islice(every, limit))
            users = self._users(state)
            return found, total, {each.key.instance: state.applications[each.key.instance] for each in found}, users

        shuffles, total, applications, users = await self._leader.confirmed(read)
        by_user = self._by_user(users)
        infos = [self._shuffle(shuffle, applications[shuffle.key.instance], by_user) for shuffle in shuffles]
        return pb.ListShufflesReply(shuffles=infos, total=total)

    async def describe_shuffle(self, request: pb.DescribeShuffleRequest) -> pb.DescribeShuffleReply:
        """Return one generation of a shuffle in sums. Raises GiveUpError (UNKNOWN_SHUFFLE)."""
        shuffle = await self._explainer.found(request)
        sums = await self._explainer.describer.sums(shuffle)

        def read(state: State) -> tuple[Application | None, dict[bytes, str], dict[int, Worker]]:
            return state.applications.get(shuffle.key.instance), self._users(state), state.workers.copy()

        application, users, workers = self._leader.peek(read)
        if application is None:
            raise gone(shuffle.key.instance)
        hosts = hosts_of(sums.shares, workers)
        progress = self._sealing.progress(shuffle.key)
        return pb.DescribeShuffleReply(
            shuffle=self._shuffle(shuffle, application, self._by_user(users)),
            committed_ms=shuffle.committed_ms,
            now_ms=self._leader.now_ms(),
            sizes=_sizes(sums.sizes) if sums.sizes is not None else None,
            copies=pb.CopyCounts(**asdict(sums.copies)),
            **sums.epochs._asdict(),
            hosts=[_host(each, workers) for each in hosts[:HOSTS_MAX]],
            hosts_total=len(hosts),
            waits_for=[
                workers[each].name for each in (progress.unanswered if progress is not None else ())[:_NAMED_MAX]
            ],
            readers=[pb.ShuffleReader(**each._asdict()) for each in self._leader.readers.of(shuffle.key)],
        )

    async def list_applications(self, request: pb.ListApplicationsRequest) -> pb.ListApplicationsReply:
        """Return all applications that the caller may see, the oldest first."""

        def read(state: State) -> list[tuple[Application, int]]:
            return [(each, len(state.below[each.instance].shuffles)) for each in state.applications.values()]

        found = [each for each in await self._leader.confirmed(read) if is_owner(CALLER.get(), each[0].user)]
        found.sort(key=lambda each: each[0].serial)
        infos = [self._application(application, shuffles) for application, shuffles in found]
        return pb.ListApplicationsReply(applications=infos, now_ms=self._leader.now_ms())

    def _application(self, application: Application, shuffles: int) -> pb.ApplicationInfo:
        return pb.ApplicationInfo(
            instance=application.instance,
            name=application.name,
            user=application.user,
            spark_id=application.spark_id,
            ui_url=application.ui_url,
            created_ms=application.created_ms,
            shuffles=shuffles,
            bytes=self._leader.usage.of(application.instance).size_bytes,
            why=self.retention(application).sentence,
        )

    async def forget(self, request: pb.ForgetRequest) -> pb.ForgetReply:
        """Drop an application or one shuffle of it at once."""
        known = await self._leader.find(lambda state: state.applications.get(request.instance))
        check_owner(CALLER.get(), known.user if known is not None else "")
        body = cmd.Forget(request.instance, request.one_shuffle, request.shuffle)
        answer = await self._leader.command("Admin/Forget", request, body)
        (applications,) = _U32.unpack(answer.subject)
        return pb.ForgetReply(applications=applications, shuffles=answer.value)

    async def drain_workers(self, request: pb.DrainWorkersRequest) -> pb.DrainWorkersReply:
        """Have workers take nothing new and hand on what is open there, or take that back."""
        workers = await self._draining.set(request.workers, request.cancel, request.within_ms)
        return pb.DrainWorkersReply(workers=map(self._worker, workers))

    async def remove_workers(self, request: pb.RemoveWorkersRequest) -> pb.RemoveWorkersReply:
        """Have nobody wait for lost workers any more."""
        workers = await self._draining.remove(request.workers)
        return pb.RemoveWorkersReply(workers=map(self._worker, workers))

    async def hand_over(self, request: pb.HandOverRequest) -> pb.HandOverReply:
        """Have another master lead, and come back when one does."""
        self._leader.require()
        return await hand_over(self._leader, request)

    def _agreed(self) -> dict[str, str]:
        """Digests of what masters must have the same; [placement] as it was reloaded."""
        config = replace(self._leader.config, placement=self._fleet.section)
        return {**settings_digests(config), "secret": self._masters.secret_digest}

    async def list_events(self, request: pb.ListEventsRequest) -> pb.ListEventsReply:
        """Return what happened lately; every master answers for itself."""
        words = [level.word for level in LEVELS]
        if request.least not in ("", *words):
            raise bad_request(f"least is one of {', '.join(words)}")
        return self._leader.events.reply(request)

    def retention(self, application: Application) -> Retention:
        """Say what keeps an application and its shuffles."""
        now, instance = self._leader.now_ns(), application.instance

        def silence_ms(lease: Lease) -> int:
            return self._leader.liveness.lease_silence(now, instance, lease.holder) // _NS_PER_MS

        return retention_of(application, silence_ms, self._leader.config.lease.deletion_grace.ms)

    async def _hash(self, tables: StateTables) -> bytes:
        """Hash the state in a thread; once for each index."""
        if self._hashed[0] != tables.index:
            loop = asyncio.get_running_loop()
            self._hashed = (tables.index, await loop.run_in_executor(None, snapshot.state_hash, tables))
        return self._hashed[1]

    def _faults(self) -> list[str]:
        faults = self._leader.config.faults
        slow = [f"disk_delay={faults.disk_delay}"] if faults.enabled and faults.disk_delay.ns else []
        return [*slow, *faults.others()]

    def _worker(self, worker: Worker) -> pb.WorkerInfo:
        report = self._leader.report(worker)
        silent = self._leader.liveness.worker_silence(self._leader.now_ns(), worker.id, worker.incarnation)
        info = pb.WorkerInfo(
            worker=worker.id,
            name=worker.name,
            incarnation=worker.incarnation,
            host=worker.host,
            rack=worker.rack,
            data_address=worker.data_address,
            http_address=worker.http_address,
            state=worker.state,
            place=place_of(worker, self._fleet.policy.racks.default),
            last_seen_ms=max(silent, 0) // _NS_PER_MS,
            version=worker.version,
            machine_id=worker.machine_id,
            tags=worker.tags,
            drain=self._draining.progress(worker),
        )
        if report is not None:
            info.directories.extend(report.heartbeat.directories)
            info.memory_bytes = report.heartbeat.memory_bytes
            info.files = report.heartbeat.files
            info.counters.update(report.heartbeat.counters)
            info.push_rate, info.fetch_rate = report.rates
            if report.heartbeat.HasField("dfs"):
                info.dfs.CopyFrom(report.heartbeat.dfs)
        else:
            info.directories.extend(
                pb.Directory(id=each.id, path=each.path, tier=each.tier, capacity_bytes=each.capacity_bytes)
                for each in worker.directories
            )
        return info

    def _users(self, state: State) -> dict[bytes, str]:
        """Users by instance, where users have quotas."""
        return {each.instance: each.user for each in state.applications.values()} if self._quotas.counts_users else {}

    def _by_user(self, users: dict[bytes, str]) -> dict[str, UsageTotals]:
        """What all applications of each user hold together, as quotas judge it; `users` of those that live."""
        by_user: dict[str, UsageTotals] = {}
        usage = self._leader.usage
        ended = {each.instance: user for user in set(users.values()) for each in usage.ended(user, users)}
        for instance, user in {**users, **ended}.items():
            by_user[user] = by_user.get(user, UsageTotals()).plus(usage.of(instance))
        return by_user

    def _shuffle(self, shuffle: Shuffle, application: Application, by_user: dict[str, UsageTotals]) -> pb.ShuffleInfo:
        key, moves, progress = shuffle.key, shuffle.moved, self._sealing.progress(shuffle.key)
        held, limits = self._leader.usage.of(key.instance), self._quotas.of_application()
        of_user, user_limits = by_user.get(application.user, UsageTotals()), self._quotas.of_user(application.user)
        return pb.ShuffleInfo(
            key=key_message(key),
            application=application.name,
            user=application.user,
            kind=pb.PARTITION_KIND_MAP if shuffle.kind == KIND_MAP else pb.PARTITION_KIND_REDUCE,
            partitions=shuffle.partitions,
            maps=shuffle.maps,
            copies=shuffle.copies,
            state=_state_of(shuffle),
            bytes=shuffle.data_bytes,
            created_ms=shuffle.created_ms,
            why=self.retention(application).sentence,
            epochs=shuffle.partitions + moves if shuffle.kind == KIND_REDUCE else 0,
            moves=moves,
            lost=shuffle.lost,
            under_replicated=shuffle.under_replicated,
            awaited=shuffle.awaited,
            copies_wanted=shuffle.copies_wanted,
            ack_copies=shuffle.ack_copies,
            incomplete=incomplete_count(shuffle.incomplete),
            sealing=progress.copies if progress is not None else 0,
            sealed=progress.settled if progress is not None else 0,
            application_bytes=held.size_bytes,
            application_files=held.files,
            application_bytes_limit=limits.size_bytes,
            application_files_limit=limits.files,
            user_bytes=of_user.size_bytes,
            user_files=of_user.files,
            user_bytes_limit=user_limits.size_bytes,
            user_files_limit=user_limits.files,
        )


def _sizes(sizes: OutputSizes) -> pb.OutputSizes:
    numbers = {each.name: getattr(sizes, each.name) for each in fields(sizes) if each.name != "histogram"}
    return pb.OutputSizes(**numbers, histogram=[pb.SizeBucket(**asdict(each)) for each in sizes.histogram])


def _host(host: HostShare, workers: Mapping[int, Worker]) -> pb.HostShare:
    shares = [
        pb.WorkerShare(
            worker=each.worker,
            name=workers[each.worker].name if each.worker in workers else "",
            state=workers[each.worker].state if each.worker in workers else "",
            copies=each.copies,
            bytes=each.size_bytes,
        )
        for each in host.shares
    ]
    return pb.HostShare(host=host.host, copies=host.copies, bytes=host.size_bytes, workers=shares)


def _state_of(shuffle: Shuffle) -> str:
    return "committed" if shuffle.committed_ms else "open"
