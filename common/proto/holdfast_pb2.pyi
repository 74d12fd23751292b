from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FallbackReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FALLBACK_REASON_OTHER: _ClassVar[FallbackReason]
    FALLBACK_REASON_MASTERS_AWAY: _ClassVar[FallbackReason]
    FALLBACK_REASON_NO_ROOM: _ClassVar[FallbackReason]
    FALLBACK_REASON_QUOTA: _ClassVar[FallbackReason]
    FALLBACK_REASON_REFUSED: _ClassVar[FallbackReason]

class PartitionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITION_KIND_UNSPECIFIED: _ClassVar[PartitionKind]
    PARTITION_KIND_MAP: _ClassVar[PartitionKind]
    PARTITION_KIND_REDUCE: _ClassVar[PartitionKind]

class Adherence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADHERENCE_STRICT: _ClassVar[Adherence]
    ADHERENCE_SOFT: _ClassVar[Adherence]
    ADHERENCE_FAILED: _ClassVar[Adherence]
FALLBACK_REASON_OTHER: FallbackReason
FALLBACK_REASON_MASTERS_AWAY: FallbackReason
FALLBACK_REASON_NO_ROOM: FallbackReason
FALLBACK_REASON_QUOTA: FallbackReason
FALLBACK_REASON_REFUSED: FallbackReason
PARTITION_KIND_UNSPECIFIED: PartitionKind
PARTITION_KIND_MAP: PartitionKind
PARTITION_KIND_REDUCE: PartitionKind
ADHERENCE_STRICT: Adherence
ADHERENCE_SOFT: Adherence
ADHERENCE_FAILED: Adherence

class CallId(_message.Message):
    __slots__ = ("client", "number", "raft_index", "open_from")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    OPEN_FROM_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    number: int
    raft_index: int
    open_from: int
    def __init__(self, client: _Optional[bytes] = ..., number: _Optional[int] = ..., raft_index: _Optional[int] = ..., open_from: _Optional[int] = ...) -> None: ...

class ShuffleKey(_message.Message):
    __slots__ = ("instance", "shuffle", "generation", "state")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    shuffle: int
    generation: int
    state: int
    def __init__(self, instance: _Optional[bytes] = ..., shuffle: _Optional[int] = ..., generation: _Optional[int] = ..., state: _Optional[int] = ...) -> None: ...

class MasterInfo(_message.Message):
    __slots__ = ("name", "http", "grpc", "leader", "reachable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    http: str
    grpc: str
    leader: bool
    reachable: bool
    def __init__(self, name: _Optional[str] = ..., http: _Optional[str] = ..., grpc: _Optional[str] = ..., leader: _Optional[bool] = ..., reachable: _Optional[bool] = ...) -> None: ...

class DiscoverRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DiscoverReply(_message.Message):
    __slots__ = ("cluster_id", "name", "leader_http", "leader_grpc", "masters", "raft_index", "version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEADER_HTTP_FIELD_NUMBER: _ClassVar[int]
    LEADER_GRPC_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    name: str
    leader_http: str
    leader_grpc: str
    masters: _containers.RepeatedCompositeFieldContainer[MasterInfo]
    raft_index: int
    version: str
    def __init__(self, cluster_id: _Optional[str] = ..., name: _Optional[str] = ..., leader_http: _Optional[str] = ..., leader_grpc: _Optional[str] = ..., masters: _Optional[_Iterable[_Union[MasterInfo, _Mapping]]] = ..., raft_index: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class RegisterApplicationRequest(_message.Message):
    __slots__ = ("call", "instance", "name", "user", "lease_ms", "holder", "spark_id", "tags", "ui_url")
    CALL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SPARK_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    UI_URL_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    instance: bytes
    name: str
    user: str
    lease_ms: int
    holder: bytes
    spark_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    ui_url: str
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., instance: _Optional[bytes] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[bytes] = ..., spark_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., ui_url: _Optional[str] = ...) -> None: ...

class RegisterApplicationReply(_message.Message):
    __slots__ = ("cluster_id", "raft_index", "lease_ms", "token")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    raft_index: int
    lease_ms: int
    token: str
    def __init__(self, cluster_id: _Optional[str] = ..., raft_index: _Optional[int] = ..., lease_ms: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("call", "instance", "name", "lease_ms", "holder")
    CALL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    instance: bytes
    name: str
    lease_ms: int
    holder: bytes
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., instance: _Optional[bytes] = ..., name: _Optional[str] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[bytes] = ...) -> None: ...

class AttachReply(_message.Message):
    __slots__ = ("instance", "name", "lease_ms", "raft_index", "token")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    name: str
    lease_ms: int
    raft_index: int
    token: str
    def __init__(self, instance: _Optional[bytes] = ..., name: _Optional[str] = ..., lease_ms: _Optional[int] = ..., raft_index: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("instance", "holder")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    holder: bytes
    def __init__(self, instance: _Optional[bytes] = ..., holder: _Optional[bytes] = ...) -> None: ...

class RenewLeaseReply(_message.Message):
    __slots__ = ("raft_index", "token")
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    raft_index: int
    token: str
    def __init__(self, raft_index: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class ReportFallbackRequest(_message.Message):
    __slots__ = ("instance", "name", "reason", "shuffles", "text")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    name: str
    reason: FallbackReason
    shuffles: int
    text: str
    def __init__(self, instance: _Optional[bytes] = ..., name: _Optional[str] = ..., reason: _Optional[_Union[FallbackReason, str]] = ..., shuffles: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class ReportFallbackReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DetachRequest(_message.Message):
    __slots__ = ("call", "instance", "holder")
    CALL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    instance: bytes
    holder: bytes
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., instance: _Optional[bytes] = ..., holder: _Optional[bytes] = ...) -> None: ...

class DetachReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegisterShuffleRequest(_message.Message):
    __slots__ = ("call", "key", "kind", "partitions", "maps", "copies", "ack", "holder", "failed_before", "to_write", "unusable_workers", "ack_copies")
    CALL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    FAILED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TO_WRITE_FIELD_NUMBER: _ClassVar[int]
    UNUSABLE_WORKERS_FIELD_NUMBER: _ClassVar[int]
    ACK_COPIES_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    key: ShuffleKey
    kind: PartitionKind
    partitions: int
    maps: int
    copies: int
    ack: int
    holder: bytes
    failed_before: bool
    to_write: bool
    unusable_workers: _containers.RepeatedScalarFieldContainer[int]
    ack_copies: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., kind: _Optional[_Union[PartitionKind, str]] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., copies: _Optional[int] = ..., ack: _Optional[int] = ..., holder: _Optional[bytes] = ..., failed_before: _Optional[bool] = ..., to_write: _Optional[bool] = ..., unusable_workers: _Optional[_Iterable[int]] = ..., ack_copies: _Optional[int] = ...) -> None: ...

class RegisterShuffleReply(_message.Message):
    __slots__ = ("assignment_array", "workers", "raft_index", "copies", "generation", "state", "lost_workers")
    ASSIGNMENT_ARRAY_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOST_WORKERS_FIELD_NUMBER: _ClassVar[int]
    assignment_array: bytes
    workers: _containers.RepeatedCompositeFieldContainer[WorkerAddress]
    raft_index: int
    copies: int
    generation: int
    state: int
    lost_workers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, assignment_array: _Optional[bytes] = ..., workers: _Optional[_Iterable[_Union[WorkerAddress, _Mapping]]] = ..., raft_index: _Optional[int] = ..., copies: _Optional[int] = ..., generation: _Optional[int] = ..., state: _Optional[int] = ..., lost_workers: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerAddress(_message.Message):
    __slots__ = ("worker", "incarnation", "host", "address", "alive", "place", "draining")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    host: str
    address: str
    alive: bool
    place: str
    draining: bool
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., address: _Optional[str] = ..., alive: _Optional[bool] = ..., place: _Optional[str] = ..., draining: _Optional[bool] = ...) -> None: ...

class FailedEpoch(_message.Message):
    __slots__ = ("partition", "epoch", "status")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    epoch: int
    status: int
    def __init__(self, partition: _Optional[int] = ..., epoch: _Optional[int] = ..., status: _Optional[int] = ...) -> None: ...

class IncompleteCopy(_message.Message):
    __slots__ = ("partition", "epoch", "worker")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    partition: int
    epoch: int
    worker: int
    def __init__(self, partition: _Optional[int] = ..., epoch: _Optional[int] = ..., worker: _Optional[int] = ...) -> None: ...

class ReviveRequest(_message.Message):
    __slots__ = ("key", "failed", "unusable_workers", "holder", "incomplete")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    UNUSABLE_WORKERS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    failed: _containers.RepeatedCompositeFieldContainer[FailedEpoch]
    unusable_workers: _containers.RepeatedScalarFieldContainer[int]
    holder: bytes
    incomplete: _containers.RepeatedCompositeFieldContainer[IncompleteCopy]
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., failed: _Optional[_Iterable[_Union[FailedEpoch, _Mapping]]] = ..., unusable_workers: _Optional[_Iterable[int]] = ..., holder: _Optional[bytes] = ..., incomplete: _Optional[_Iterable[_Union[IncompleteCopy, _Mapping]]] = ...) -> None: ...

class NewLocation(_message.Message):
    __slots__ = ("partition", "epoch", "workers", "hint")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    epoch: int
    workers: _containers.RepeatedScalarFieldContainer[int]
    hint: int
    def __init__(self, partition: _Optional[int] = ..., epoch: _Optional[int] = ..., workers: _Optional[_Iterable[int]] = ..., hint: _Optional[int] = ...) -> None: ...

class ReviveReply(_message.Message):
    __slots__ = ("locations", "workers", "raft_index", "room")
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    locations: _containers.RepeatedCompositeFieldContainer[NewLocation]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerAddress]
    raft_index: int
    room: str
    def __init__(self, locations: _Optional[_Iterable[_Union[NewLocation, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerAddress, _Mapping]]] = ..., raft_index: _Optional[int] = ..., room: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("call", "key", "winners_array", "holder")
    CALL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WINNERS_ARRAY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    key: ShuffleKey
    winners_array: bytes
    holder: bytes
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., winners_array: _Optional[bytes] = ..., holder: _Optional[bytes] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("raft_index", "lost", "under_replicated", "awaited", "waits_for")
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    raft_index: int
    lost: int
    under_replicated: int
    awaited: int
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, raft_index: _Optional[int] = ..., lost: _Optional[int] = ..., under_replicated: _Optional[int] = ..., awaited: _Optional[int] = ..., waits_for: _Optional[_Iterable[str]] = ...) -> None: ...

class GetManifestRequest(_message.Message):
    __slots__ = ("key", "wait_ms", "holder", "offers_winners")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    OFFERS_WINNERS_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    wait_ms: int
    holder: bytes
    offers_winners: bool
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., wait_ms: _Optional[int] = ..., holder: _Optional[bytes] = ..., offers_winners: _Optional[bool] = ...) -> None: ...

class GetManifestReply(_message.Message):
    __slots__ = ("kind", "partitions", "winners_array", "workers", "raft_index", "manifest_array", "state")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    WINNERS_ARRAY_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_ARRAY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    kind: PartitionKind
    partitions: int
    winners_array: bytes
    workers: _containers.RepeatedCompositeFieldContainer[WorkerAddress]
    raft_index: int
    manifest_array: bytes
    state: int
    def __init__(self, kind: _Optional[_Union[PartitionKind, str]] = ..., partitions: _Optional[int] = ..., winners_array: _Optional[bytes] = ..., workers: _Optional[_Iterable[_Union[WorkerAddress, _Mapping]]] = ..., raft_index: _Optional[int] = ..., manifest_array: _Optional[bytes] = ..., state: _Optional[int] = ...) -> None: ...

class UnregisterShuffleRequest(_message.Message):
    __slots__ = ("call", "key", "holder")
    CALL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    key: ShuffleKey
    holder: bytes
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., holder: _Optional[bytes] = ...) -> None: ...

class UnregisterShuffleReply(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class Directory(_message.Message):
    __slots__ = ("id", "path", "tier", "capacity_bytes", "used_bytes", "free_bytes", "healthy", "problem", "full", "device", "state", "errors", "flush_us", "fetch_us")
    ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_US_FIELD_NUMBER: _ClassVar[int]
    FETCH_US_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    path: str
    tier: str
    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    healthy: bool
    problem: str
    full: str
    device: int
    state: str
    errors: int
    flush_us: int
    fetch_us: int
    def __init__(self, id: _Optional[bytes] = ..., path: _Optional[str] = ..., tier: _Optional[str] = ..., capacity_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., healthy: _Optional[bool] = ..., problem: _Optional[str] = ..., full: _Optional[str] = ..., device: _Optional[int] = ..., state: _Optional[str] = ..., errors: _Optional[int] = ..., flush_us: _Optional[int] = ..., fetch_us: _Optional[int] = ...) -> None: ...

class Dfs(_message.Message):
    __slots__ = ("url", "problem", "problem_ms", "state", "bytes", "files", "put_us", "read_us")
    URL_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    PUT_US_FIELD_NUMBER: _ClassVar[int]
    READ_US_FIELD_NUMBER: _ClassVar[int]
    url: str
    problem: str
    problem_ms: int
    state: str
    bytes: int
    files: int
    put_us: int
    read_us: int
    def __init__(self, url: _Optional[str] = ..., problem: _Optional[str] = ..., problem_ms: _Optional[int] = ..., state: _Optional[str] = ..., bytes: _Optional[int] = ..., files: _Optional[int] = ..., put_us: _Optional[int] = ..., read_us: _Optional[int] = ...) -> None: ...

class ShuffleHeld(_message.Message):
    __slots__ = ("shuffle", "bytes", "files")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    shuffle: int
    bytes: int
    files: int
    def __init__(self, shuffle: _Optional[int] = ..., bytes: _Optional[int] = ..., files: _Optional[int] = ...) -> None: ...

class ApplicationHeld(_message.Message):
    __slots__ = ("instance", "bytes", "files", "largest")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    bytes: int
    files: int
    largest: _containers.RepeatedCompositeFieldContainer[ShuffleHeld]
    def __init__(self, instance: _Optional[bytes] = ..., bytes: _Optional[int] = ..., files: _Optional[int] = ..., largest: _Optional[_Iterable[_Union[ShuffleHeld, _Mapping]]] = ...) -> None: ...

class RegisterWorkerRequest(_message.Message):
    __slots__ = ("call", "uid", "name", "incarnation", "host", "rack", "data_address", "http_address", "directories", "boot_id", "version", "raft_index", "machine_id", "tags", "applications", "dfs")
    CALL_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    DFS_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    uid: bytes
    name: str
    incarnation: int
    host: str
    rack: str
    data_address: str
    http_address: str
    directories: _containers.RepeatedCompositeFieldContainer[Directory]
    boot_id: str
    version: str
    raft_index: int
    machine_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationHeld]
    dfs: Dfs
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., uid: _Optional[bytes] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., rack: _Optional[str] = ..., data_address: _Optional[str] = ..., http_address: _Optional[str] = ..., directories: _Optional[_Iterable[_Union[Directory, _Mapping]]] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., raft_index: _Optional[int] = ..., machine_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., applications: _Optional[_Iterable[_Union[ApplicationHeld, _Mapping]]] = ..., dfs: _Optional[_Union[Dfs, _Mapping]] = ...) -> None: ...

class RegisterWorkerReply(_message.Message):
    __slots__ = ("worker", "incarnation", "cluster_id", "raft_index", "heartbeat_ms", "state")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    cluster_id: str
    raft_index: int
    heartbeat_ms: int
    state: int
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ..., cluster_id: _Optional[str] = ..., raft_index: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., state: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker", "incarnation", "directories", "memory_bytes", "files", "counters", "leaving", "emptying", "uid", "state", "applications", "dfs", "neighbours")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    EMPTYING_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    DFS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    directories: _containers.RepeatedCompositeFieldContainer[Directory]
    memory_bytes: int
    files: int
    counters: _containers.ScalarMap[str, int]
    leaving: bool
    emptying: Emptying
    uid: bytes
    state: int
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationHeld]
    dfs: Dfs
    neighbours: _containers.RepeatedCompositeFieldContainer[HeartbeatRequest]
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[Directory, _Mapping]]] = ..., memory_bytes: _Optional[int] = ..., files: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ..., leaving: _Optional[bool] = ..., emptying: _Optional[_Union[Emptying, _Mapping]] = ..., uid: _Optional[bytes] = ..., state: _Optional[int] = ..., applications: _Optional[_Iterable[_Union[ApplicationHeld, _Mapping]]] = ..., dfs: _Optional[_Union[Dfs, _Mapping]] = ..., neighbours: _Optional[_Iterable[_Union[HeartbeatRequest, _Mapping]]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("reregister", "raft_index", "draining", "clear", "neighbours")
    REREGISTER_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    reregister: bool
    raft_index: int
    draining: bool
    clear: bool
    neighbours: _containers.RepeatedCompositeFieldContainer[HeartbeatReply]
    def __init__(self, reregister: _Optional[bool] = ..., raft_index: _Optional[int] = ..., draining: _Optional[bool] = ..., clear: _Optional[bool] = ..., neighbours: _Optional[_Iterable[_Union[HeartbeatReply, _Mapping]]] = ...) -> None: ...

class Emptying(_message.Message):
    __slots__ = ("writing", "shuffles")
    WRITING_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    writing: int
    shuffles: int
    def __init__(self, writing: _Optional[int] = ..., shuffles: _Optional[int] = ...) -> None: ...

class CheckShufflesRequest(_message.Message):
    __slots__ = ("worker", "keys", "raft_index", "uid", "state")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    worker: int
    keys: _containers.RepeatedCompositeFieldContainer[ShuffleKey]
    raft_index: int
    uid: bytes
    state: int
    def __init__(self, worker: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[ShuffleKey, _Mapping]]] = ..., raft_index: _Optional[int] = ..., uid: _Optional[bytes] = ..., state: _Optional[int] = ...) -> None: ...

class CheckShufflesReply(_message.Message):
    __slots__ = ("dropped", "cluster_id", "raft_index", "unheard", "state")
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    UNHEARD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    dropped: _containers.RepeatedCompositeFieldContainer[ShuffleKey]
    cluster_id: str
    raft_index: int
    unheard: _containers.RepeatedCompositeFieldContainer[ShuffleKey]
    state: int
    def __init__(self, dropped: _Optional[_Iterable[_Union[ShuffleKey, _Mapping]]] = ..., cluster_id: _Optional[str] = ..., raft_index: _Optional[int] = ..., unheard: _Optional[_Iterable[_Union[ShuffleKey, _Mapping]]] = ..., state: _Optional[int] = ...) -> None: ...

class LookUpRequest(_message.Message):
    __slots__ = ("keys", "workers")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[ShuffleKey]
    workers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, keys: _Optional[_Iterable[_Union[ShuffleKey, _Mapping]]] = ..., workers: _Optional[_Iterable[int]] = ...) -> None: ...

class LookUpReply(_message.Message):
    __slots__ = ("registered", "workers")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    registered: _containers.RepeatedCompositeFieldContainer[ShuffleKey]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerAddress]
    def __init__(self, registered: _Optional[_Iterable[_Union[ShuffleKey, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerAddress, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("cluster_id", "name", "role", "term", "leader_http", "commit_index", "applied_index", "snapshot_index", "log_entries", "state_hash", "workers", "workers_alive", "applications", "shuffles", "masters", "faults", "version", "dfs_url", "clock_ms", "settings", "versions", "under_replicated", "awaited", "adhering_strict", "adhering_soft", "adhering_failed", "epochs_short", "copies_coming", "restore_at_ms", "open_epochs_short")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_HTTP_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STATE_HASH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_ALIVE_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DFS_URL_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    ADHERING_STRICT_FIELD_NUMBER: _ClassVar[int]
    ADHERING_SOFT_FIELD_NUMBER: _ClassVar[int]
    ADHERING_FAILED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_SHORT_FIELD_NUMBER: _ClassVar[int]
    COPIES_COMING_FIELD_NUMBER: _ClassVar[int]
    RESTORE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_EPOCHS_SHORT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    name: str
    role: str
    term: int
    leader_http: str
    commit_index: int
    applied_index: int
    snapshot_index: int
    log_entries: int
    state_hash: bytes
    workers: int
    workers_alive: int
    applications: int
    shuffles: int
    masters: _containers.RepeatedCompositeFieldContainer[MasterInfo]
    faults: _containers.RepeatedScalarFieldContainer[str]
    version: str
    dfs_url: str
    clock_ms: int
    settings: _containers.ScalarMap[str, str]
    versions: _containers.ScalarMap[str, str]
    under_replicated: int
    awaited: int
    adhering_strict: int
    adhering_soft: int
    adhering_failed: int
    epochs_short: int
    copies_coming: int
    restore_at_ms: int
    open_epochs_short: int
    def __init__(self, cluster_id: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., leader_http: _Optional[str] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., snapshot_index: _Optional[int] = ..., log_entries: _Optional[int] = ..., state_hash: _Optional[bytes] = ..., workers: _Optional[int] = ..., workers_alive: _Optional[int] = ..., applications: _Optional[int] = ..., shuffles: _Optional[int] = ..., masters: _Optional[_Iterable[_Union[MasterInfo, _Mapping]]] = ..., faults: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., dfs_url: _Optional[str] = ..., clock_ms: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., versions: _Optional[_Mapping[str, str]] = ..., under_replicated: _Optional[int] = ..., awaited: _Optional[int] = ..., adhering_strict: _Optional[int] = ..., adhering_soft: _Optional[int] = ..., adhering_failed: _Optional[int] = ..., epochs_short: _Optional[int] = ..., copies_coming: _Optional[int] = ..., restore_at_ms: _Optional[int] = ..., open_epochs_short: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerInfo(_message.Message):
    __slots__ = ("worker", "name", "incarnation", "host", "rack", "data_address", "http_address", "state", "last_seen_ms", "directories", "memory_bytes", "files", "counters", "version", "place", "drain", "push_rate", "fetch_rate", "machine_id", "tags", "dfs")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PUSH_RATE_FIELD_NUMBER: _ClassVar[int]
    FETCH_RATE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DFS_FIELD_NUMBER: _ClassVar[int]
    worker: int
    name: str
    incarnation: int
    host: str
    rack: str
    data_address: str
    http_address: str
    state: str
    last_seen_ms: int
    directories: _containers.RepeatedCompositeFieldContainer[Directory]
    memory_bytes: int
    files: int
    counters: _containers.ScalarMap[str, int]
    version: str
    place: str
    drain: Drain
    push_rate: int
    fetch_rate: int
    machine_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    dfs: Dfs
    def __init__(self, worker: _Optional[int] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., rack: _Optional[str] = ..., data_address: _Optional[str] = ..., http_address: _Optional[str] = ..., state: _Optional[str] = ..., last_seen_ms: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[Directory, _Mapping]]] = ..., memory_bytes: _Optional[int] = ..., files: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ..., version: _Optional[str] = ..., place: _Optional[str] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., push_rate: _Optional[int] = ..., fetch_rate: _Optional[int] = ..., machine_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., dfs: _Optional[_Union[Dfs, _Mapping]] = ...) -> None: ...

class ListWorkersReply(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("since_ms", "epochs", "epoch_shuffles", "writing", "shuffles", "restart", "removal", "waits", "left_ms", "reach")
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    WRITING_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    REMOVAL_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    since_ms: int
    epochs: int
    epoch_shuffles: int
    writing: int
    shuffles: int
    restart: bool
    removal: bool
    waits: str
    left_ms: int
    reach: str
    def __init__(self, since_ms: _Optional[int] = ..., epochs: _Optional[int] = ..., epoch_shuffles: _Optional[int] = ..., writing: _Optional[int] = ..., shuffles: _Optional[int] = ..., restart: _Optional[bool] = ..., removal: _Optional[bool] = ..., waits: _Optional[str] = ..., left_ms: _Optional[int] = ..., reach: _Optional[str] = ...) -> None: ...

class DrainWorkersRequest(_message.Message):
    __slots__ = ("workers", "cancel", "within_ms")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedScalarFieldContainer[str]
    cancel: bool
    within_ms: int
    def __init__(self, workers: _Optional[_Iterable[str]] = ..., cancel: _Optional[bool] = ..., within_ms: _Optional[int] = ...) -> None: ...

class DrainWorkersReply(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ...) -> None: ...

class RemoveWorkersRequest(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workers: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveWorkersReply(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ...) -> None: ...

class ListShufflesRequest(_message.Message):
    __slots__ = ("instance", "limit", "user", "state", "shuffle")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    limit: int
    user: str
    state: str
    shuffle: int
    def __init__(self, instance: _Optional[bytes] = ..., limit: _Optional[int] = ..., user: _Optional[str] = ..., state: _Optional[str] = ..., shuffle: _Optional[int] = ...) -> None: ...

class ShuffleInfo(_message.Message):
    __slots__ = ("key", "application", "user", "kind", "partitions", "maps", "copies", "state", "bytes", "created_ms", "why", "epochs", "moves", "lost", "sealing", "sealed", "under_replicated", "awaited", "copies_wanted", "ack_copies", "incomplete", "application_bytes", "application_files", "application_bytes_limit", "application_files_limit", "user_bytes", "user_files", "user_bytes_limit", "user_files_limit")
    KEY_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    COPIES_WANTED_FIELD_NUMBER: _ClassVar[int]
    ACK_COPIES_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FILES_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FILES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    USER_BYTES_FIELD_NUMBER: _ClassVar[int]
    USER_FILES_FIELD_NUMBER: _ClassVar[int]
    USER_BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    USER_FILES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    application: str
    user: str
    kind: PartitionKind
    partitions: int
    maps: int
    copies: int
    state: str
    bytes: int
    created_ms: int
    why: str
    epochs: int
    moves: int
    lost: int
    sealing: int
    sealed: int
    under_replicated: int
    awaited: int
    copies_wanted: int
    ack_copies: int
    incomplete: int
    application_bytes: int
    application_files: int
    application_bytes_limit: int
    application_files_limit: int
    user_bytes: int
    user_files: int
    user_bytes_limit: int
    user_files_limit: int
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., application: _Optional[str] = ..., user: _Optional[str] = ..., kind: _Optional[_Union[PartitionKind, str]] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., copies: _Optional[int] = ..., state: _Optional[str] = ..., bytes: _Optional[int] = ..., created_ms: _Optional[int] = ..., why: _Optional[str] = ..., epochs: _Optional[int] = ..., moves: _Optional[int] = ..., lost: _Optional[int] = ..., sealing: _Optional[int] = ..., sealed: _Optional[int] = ..., under_replicated: _Optional[int] = ..., awaited: _Optional[int] = ..., copies_wanted: _Optional[int] = ..., ack_copies: _Optional[int] = ..., incomplete: _Optional[int] = ..., application_bytes: _Optional[int] = ..., application_files: _Optional[int] = ..., application_bytes_limit: _Optional[int] = ..., application_files_limit: _Optional[int] = ..., user_bytes: _Optional[int] = ..., user_files: _Optional[int] = ..., user_bytes_limit: _Optional[int] = ..., user_files_limit: _Optional[int] = ...) -> None: ...

class ListShufflesReply(_message.Message):
    __slots__ = ("shuffles", "total")
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    shuffles: _containers.RepeatedCompositeFieldContainer[ShuffleInfo]
    total: int
    def __init__(self, shuffles: _Optional[_Iterable[_Union[ShuffleInfo, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class DescribeShuffleRequest(_message.Message):
    __slots__ = ("instance", "shuffle", "generation")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    shuffle: int
    generation: int
    def __init__(self, instance: _Optional[bytes] = ..., shuffle: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class SizeBucket(_message.Message):
    __slots__ = ("from_bytes", "below_bytes", "count")
    FROM_BYTES_FIELD_NUMBER: _ClassVar[int]
    BELOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    from_bytes: int
    below_bytes: int
    count: int
    def __init__(self, from_bytes: _Optional[int] = ..., below_bytes: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class OutputSizes(_message.Message):
    __slots__ = ("count", "total_bytes", "median_bytes", "p99_bytes", "largest_bytes", "largest", "histogram")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_BYTES_FIELD_NUMBER: _ClassVar[int]
    P99_BYTES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    count: int
    total_bytes: int
    median_bytes: int
    p99_bytes: int
    largest_bytes: int
    largest: int
    histogram: _containers.RepeatedCompositeFieldContainer[SizeBucket]
    def __init__(self, count: _Optional[int] = ..., total_bytes: _Optional[int] = ..., median_bytes: _Optional[int] = ..., p99_bytes: _Optional[int] = ..., largest_bytes: _Optional[int] = ..., largest: _Optional[int] = ..., histogram: _Optional[_Iterable[_Union[SizeBucket, _Mapping]]] = ...) -> None: ...

class CopyCounts(_message.Message):
    __slots__ = ("placed", "readable", "empty", "incomplete", "unavailable", "restoring", "lost", "away")
    PLACED_FIELD_NUMBER: _ClassVar[int]
    READABLE_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    RESTORING_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    placed: int
    readable: int
    empty: int
    incomplete: int
    unavailable: int
    restoring: int
    lost: int
    away: int
    def __init__(self, placed: _Optional[int] = ..., readable: _Optional[int] = ..., empty: _Optional[int] = ..., incomplete: _Optional[int] = ..., unavailable: _Optional[int] = ..., restoring: _Optional[int] = ..., lost: _Optional[int] = ..., away: _Optional[int] = ...) -> None: ...

class WorkerShare(_message.Message):
    __slots__ = ("worker", "name", "state", "copies", "bytes")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    worker: int
    name: str
    state: str
    copies: int
    bytes: int
    def __init__(self, worker: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., copies: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class HostShare(_message.Message):
    __slots__ = ("host", "copies", "bytes", "workers")
    HOST_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    host: str
    copies: int
    bytes: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerShare]
    def __init__(self, host: _Optional[str] = ..., copies: _Optional[int] = ..., bytes: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerShare, _Mapping]]] = ...) -> None: ...

class ShuffleReader(_message.Message):
    __slots__ = ("host", "asked", "last_ms")
    HOST_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    host: str
    asked: int
    last_ms: int
    def __init__(self, host: _Optional[str] = ..., asked: _Optional[int] = ..., last_ms: _Optional[int] = ...) -> None: ...

class DescribeShuffleReply(_message.Message):
    __slots__ = ("shuffle", "committed_ms", "now_ms", "sizes", "copies", "partitions_moved", "epochs_most", "epochs_most_partition", "partitions_lost", "lost", "hosts", "hosts_total", "waits_for", "readers")
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_MOVED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_MOST_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_MOST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_LOST_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    shuffle: ShuffleInfo
    committed_ms: int
    now_ms: int
    sizes: OutputSizes
    copies: CopyCounts
    partitions_moved: int
    epochs_most: int
    epochs_most_partition: int
    partitions_lost: int
    lost: _containers.RepeatedScalarFieldContainer[int]
    hosts: _containers.RepeatedCompositeFieldContainer[HostShare]
    hosts_total: int
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    readers: _containers.RepeatedCompositeFieldContainer[ShuffleReader]
    def __init__(self, shuffle: _Optional[_Union[ShuffleInfo, _Mapping]] = ..., committed_ms: _Optional[int] = ..., now_ms: _Optional[int] = ..., sizes: _Optional[_Union[OutputSizes, _Mapping]] = ..., copies: _Optional[_Union[CopyCounts, _Mapping]] = ..., partitions_moved: _Optional[int] = ..., epochs_most: _Optional[int] = ..., epochs_most_partition: _Optional[int] = ..., partitions_lost: _Optional[int] = ..., lost: _Optional[_Iterable[int]] = ..., hosts: _Optional[_Iterable[_Union[HostShare, _Mapping]]] = ..., hosts_total: _Optional[int] = ..., waits_for: _Optional[_Iterable[str]] = ..., readers: _Optional[_Iterable[_Union[ShuffleReader, _Mapping]]] = ...) -> None: ...

class ListApplicationsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ApplicationInfo(_message.Message):
    __slots__ = ("instance", "name", "user", "spark_id", "created_ms", "shuffles", "bytes", "why", "ui_url")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SPARK_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    UI_URL_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    name: str
    user: str
    spark_id: str
    created_ms: int
    shuffles: int
    bytes: int
    why: str
    ui_url: str
    def __init__(self, instance: _Optional[bytes] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., spark_id: _Optional[str] = ..., created_ms: _Optional[int] = ..., shuffles: _Optional[int] = ..., bytes: _Optional[int] = ..., why: _Optional[str] = ..., ui_url: _Optional[str] = ...) -> None: ...

class ListApplicationsReply(_message.Message):
    __slots__ = ("applications", "now_ms")
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationInfo]
    now_ms: int
    def __init__(self, applications: _Optional[_Iterable[_Union[ApplicationInfo, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("call", "instance", "one_shuffle", "shuffle")
    CALL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ONE_SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    instance: bytes
    one_shuffle: bool
    shuffle: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., instance: _Optional[bytes] = ..., one_shuffle: _Optional[bool] = ..., shuffle: _Optional[int] = ...) -> None: ...

class ForgetReply(_message.Message):
    __slots__ = ("applications", "shuffles")
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    applications: int
    shuffles: int
    def __init__(self, applications: _Optional[int] = ..., shuffles: _Optional[int] = ...) -> None: ...

class ExplainPlacementRequest(_message.Message):
    __slots__ = ("instance", "shuffle", "generation", "first", "limit")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    shuffle: int
    generation: int
    first: int
    limit: int
    def __init__(self, instance: _Optional[bytes] = ..., shuffle: _Optional[int] = ..., generation: _Optional[int] = ..., first: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class LeftOut(_message.Message):
    __slots__ = ("worker", "name", "why")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    worker: int
    name: str
    why: str
    def __init__(self, worker: _Optional[int] = ..., name: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class PlacementDecision(_message.Message):
    __slots__ = ("time_ms", "what", "partitions", "policy", "order", "candidates", "spared", "not_adhering", "left_out", "left_out_total", "soft")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    SPARED_FIELD_NUMBER: _ClassVar[int]
    NOT_ADHERING_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    what: str
    partitions: int
    policy: str
    order: str
    candidates: int
    spared: int
    not_adhering: int
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOut]
    left_out_total: int
    soft: int
    def __init__(self, time_ms: _Optional[int] = ..., what: _Optional[str] = ..., partitions: _Optional[int] = ..., policy: _Optional[str] = ..., order: _Optional[str] = ..., candidates: _Optional[int] = ..., spared: _Optional[int] = ..., not_adhering: _Optional[int] = ..., left_out: _Optional[_Iterable[_Union[LeftOut, _Mapping]]] = ..., left_out_total: _Optional[int] = ..., soft: _Optional[int] = ...) -> None: ...

class ExplainPlacementReply(_message.Message):
    __slots__ = ("key", "kind", "copies_wanted", "copies", "policy", "order", "locations", "adheres", "workers", "decisions", "total", "not_adhering", "adherence", "soft", "tags")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COPIES_WANTED_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    ADHERES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NOT_ADHERING_FIELD_NUMBER: _ClassVar[int]
    ADHERENCE_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    kind: PartitionKind
    copies_wanted: int
    copies: int
    policy: str
    order: str
    locations: _containers.RepeatedCompositeFieldContainer[NewLocation]
    adheres: _containers.RepeatedScalarFieldContainer[bool]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    decisions: _containers.RepeatedCompositeFieldContainer[PlacementDecision]
    total: int
    not_adhering: int
    adherence: _containers.RepeatedScalarFieldContainer[Adherence]
    soft: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., kind: _Optional[_Union[PartitionKind, str]] = ..., copies_wanted: _Optional[int] = ..., copies: _Optional[int] = ..., policy: _Optional[str] = ..., order: _Optional[str] = ..., locations: _Optional[_Iterable[_Union[NewLocation, _Mapping]]] = ..., adheres: _Optional[_Iterable[bool]] = ..., workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ..., decisions: _Optional[_Iterable[_Union[PlacementDecision, _Mapping]]] = ..., total: _Optional[int] = ..., not_adhering: _Optional[int] = ..., adherence: _Optional[_Iterable[_Union[Adherence, str]]] = ..., soft: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("to", "away_from")
    TO_FIELD_NUMBER: _ClassVar[int]
    AWAY_FROM_FIELD_NUMBER: _ClassVar[int]
    to: str
    away_from: str
    def __init__(self, to: _Optional[str] = ..., away_from: _Optional[str] = ...) -> None: ...

class HandOverReply(_message.Message):
    __slots__ = ("leader", "before")
    LEADER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    leader: str
    before: str
    def __init__(self, leader: _Optional[str] = ..., before: _Optional[str] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadReply(_message.Message):
    __slots__ = ("name", "changed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    changed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., changed: _Optional[_Iterable[str]] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("after", "limit", "least")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    least: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., least: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "time_ms", "raft_index", "master", "level", "event", "subject", "text", "times")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    number: int
    time_ms: int
    raft_index: int
    master: str
    level: str
    event: str
    subject: str
    text: str
    times: int
    def __init__(self, number: _Optional[int] = ..., time_ms: _Optional[int] = ..., raft_index: _Optional[int] = ..., master: _Optional[str] = ..., level: _Optional[str] = ..., event: _Optional[str] = ..., subject: _Optional[str] = ..., text: _Optional[str] = ..., times: _Optional[int] = ...) -> None: ...

class ListEventsReply(_message.Message):
    __slots__ = ("name", "last", "events")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    last: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, name: _Optional[str] = ..., last: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...
