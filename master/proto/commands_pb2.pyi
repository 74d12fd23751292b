from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entry(_message.Message):
    __slots__ = ("version", "time_ms", "commands")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    time_ms: int
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    def __init__(self, version: _Optional[int] = ..., time_ms: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("client", "number", "drawn_index", "digest", "open_from", "register_worker", "set_workers_alive", "register_application", "attach", "detach", "mark_leases", "end_leases", "register_shuffle", "commit", "unregister", "forget", "part", "revive", "move_epochs", "place_workers", "set_workers_draining", "add_copies", "begin_state", "mark_incomplete")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DRAWN_INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_FROM_FIELD_NUMBER: _ClassVar[int]
    REGISTER_WORKER_FIELD_NUMBER: _ClassVar[int]
    SET_WORKERS_ALIVE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_APPLICATION_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    MARK_LEASES_FIELD_NUMBER: _ClassVar[int]
    END_LEASES_FIELD_NUMBER: _ClassVar[int]
    REGISTER_SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    REVIVE_FIELD_NUMBER: _ClassVar[int]
    MOVE_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    PLACE_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SET_WORKERS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    ADD_COPIES_FIELD_NUMBER: _ClassVar[int]
    BEGIN_STATE_FIELD_NUMBER: _ClassVar[int]
    MARK_INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    number: int
    drawn_index: int
    digest: bytes
    open_from: int
    register_worker: RegisterWorker
    set_workers_alive: SetWorkersAlive
    register_application: RegisterApplication
    attach: Attach
    detach: Detach
    mark_leases: MarkLeases
    end_leases: EndLeases
    register_shuffle: RegisterShuffle
    commit: Commit
    unregister: Unregister
    forget: Forget
    part: Part
    revive: Revive
    move_epochs: MoveEpochs
    place_workers: PlaceWorkers
    set_workers_draining: SetWorkersDraining
    add_copies: AddCopies
    begin_state: BeginState
    mark_incomplete: MarkIncomplete
    def __init__(self, client: _Optional[bytes] = ..., number: _Optional[int] = ..., drawn_index: _Optional[int] = ..., digest: _Optional[bytes] = ..., open_from: _Optional[int] = ..., register_worker: _Optional[_Union[RegisterWorker, _Mapping]] = ..., set_workers_alive: _Optional[_Union[SetWorkersAlive, _Mapping]] = ..., register_application: _Optional[_Union[RegisterApplication, _Mapping]] = ..., attach: _Optional[_Union[Attach, _Mapping]] = ..., detach: _Optional[_Union[Detach, _Mapping]] = ..., mark_leases: _Optional[_Union[MarkLeases, _Mapping]] = ..., end_leases: _Optional[_Union[EndLeases, _Mapping]] = ..., register_shuffle: _Optional[_Union[RegisterShuffle, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., unregister: _Optional[_Union[Unregister, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., revive: _Optional[_Union[Revive, _Mapping]] = ..., move_epochs: _Optional[_Union[MoveEpochs, _Mapping]] = ..., place_workers: _Optional[_Union[PlaceWorkers, _Mapping]] = ..., set_workers_draining: _Optional[_Union[SetWorkersDraining, _Mapping]] = ..., add_copies: _Optional[_Union[AddCopies, _Mapping]] = ..., begin_state: _Optional[_Union[BeginState, _Mapping]] = ..., mark_incomplete: _Optional[_Union[MarkIncomplete, _Mapping]] = ...) -> None: ...

class BeginState(_message.Message):
    __slots__ = ("state", "after")
    STATE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    state: int
    after: int
    def __init__(self, state: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

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

class Directory(_message.Message):
    __slots__ = ("id", "path", "tier", "capacity_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    path: str
    tier: str
    capacity_bytes: int
    def __init__(self, id: _Optional[bytes] = ..., path: _Optional[str] = ..., tier: _Optional[str] = ..., capacity_bytes: _Optional[int] = ...) -> None: ...

class RegisterWorker(_message.Message):
    __slots__ = ("uid", "name", "incarnation", "host", "rack", "data_address", "http_address", "directories", "boot_id", "version", "place", "machine_id", "tags")
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
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
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
    place: str
    machine_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uid: _Optional[bytes] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., rack: _Optional[str] = ..., data_address: _Optional[str] = ..., http_address: _Optional[str] = ..., directories: _Optional[_Iterable[_Union[Directory, _Mapping]]] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., place: _Optional[str] = ..., machine_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerRef(_message.Message):
    __slots__ = ("worker", "incarnation")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class SetWorkersAlive(_message.Message):
    __slots__ = ("alive", "workers", "gone")
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    alive: bool
    workers: _containers.RepeatedCompositeFieldContainer[WorkerRef]
    gone: _containers.RepeatedCompositeFieldContainer[WorkerRef]
    def __init__(self, alive: _Optional[bool] = ..., workers: _Optional[_Iterable[_Union[WorkerRef, _Mapping]]] = ..., gone: _Optional[_Iterable[_Union[WorkerRef, _Mapping]]] = ...) -> None: ...

class WorkerPlace(_message.Message):
    __slots__ = ("worker", "place")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    worker: int
    place: str
    def __init__(self, worker: _Optional[int] = ..., place: _Optional[str] = ...) -> None: ...

class PlaceWorkers(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerPlace]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerPlace, _Mapping]]] = ...) -> None: ...

class SetWorkersDraining(_message.Message):
    __slots__ = ("draining", "workers", "leaves_ms")
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    LEAVES_MS_FIELD_NUMBER: _ClassVar[int]
    draining: bool
    workers: _containers.RepeatedCompositeFieldContainer[WorkerRef]
    leaves_ms: int
    def __init__(self, draining: _Optional[bool] = ..., workers: _Optional[_Iterable[_Union[WorkerRef, _Mapping]]] = ..., leaves_ms: _Optional[int] = ...) -> None: ...

class RegisterApplication(_message.Message):
    __slots__ = ("instance", "name", "user", "lease_ms", "holder", "spark_id", "tags", "ui_url")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SPARK_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    UI_URL_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    name: str
    user: str
    lease_ms: int
    holder: bytes
    spark_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    ui_url: str
    def __init__(self, instance: _Optional[bytes] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[bytes] = ..., spark_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., ui_url: _Optional[str] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("instance", "name", "lease_ms", "holder")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    name: str
    lease_ms: int
    holder: bytes
    def __init__(self, instance: _Optional[bytes] = ..., name: _Optional[str] = ..., lease_ms: _Optional[int] = ..., holder: _Optional[bytes] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("instance", "holder")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    holder: bytes
    def __init__(self, instance: _Optional[bytes] = ..., holder: _Optional[bytes] = ...) -> None: ...

class Detach(_message.Message):
    __slots__ = ("instance", "holder")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    holder: bytes
    def __init__(self, instance: _Optional[bytes] = ..., holder: _Optional[bytes] = ...) -> None: ...

class MarkLeases(_message.Message):
    __slots__ = ("marked", "leases")
    MARKED_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    marked: bool
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    def __init__(self, marked: _Optional[bool] = ..., leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ...) -> None: ...

class EndLeases(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ...) -> None: ...

class RegisterShuffle(_message.Message):
    __slots__ = ("key", "kind", "partitions", "maps", "copies_wanted", "copies", "ack", "assignment", "upload", "lost_before", "avoid", "ack_copies")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    COPIES_WANTED_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    LOST_BEFORE_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    ACK_COPIES_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    kind: int
    partitions: int
    maps: int
    copies_wanted: int
    copies: int
    ack: int
    assignment: bytes
    upload: bytes
    lost_before: bool
    avoid: _containers.RepeatedScalarFieldContainer[int]
    ack_copies: int
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., kind: _Optional[int] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., copies_wanted: _Optional[int] = ..., copies: _Optional[int] = ..., ack: _Optional[int] = ..., assignment: _Optional[bytes] = ..., upload: _Optional[bytes] = ..., lost_before: _Optional[bool] = ..., avoid: _Optional[_Iterable[int]] = ..., ack_copies: _Optional[int] = ...) -> None: ...

class MarkIncomplete(_message.Message):
    __slots__ = ("key", "rows")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    rows: bytes
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., rows: _Optional[bytes] = ...) -> None: ...

class Revive(_message.Message):
    __slots__ = ("key", "rows")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    rows: bytes
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., rows: _Optional[bytes] = ...) -> None: ...

class MoveEpochs(_message.Message):
    __slots__ = ("revives",)
    REVIVES_FIELD_NUMBER: _ClassVar[int]
    revives: _containers.RepeatedCompositeFieldContainer[Revive]
    def __init__(self, revives: _Optional[_Iterable[_Union[Revive, _Mapping]]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("key", "winners", "upload", "winners_digest", "maps", "partitions", "data_bytes", "manifest", "manifest_bytes", "epochs", "lost", "under_replicated", "unsealed", "awaited", "incomplete")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WINNERS_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    WINNERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    UNSEALED_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    winners: bytes
    upload: bytes
    winners_digest: bytes
    maps: int
    partitions: int
    data_bytes: int
    manifest: bytes
    manifest_bytes: int
    epochs: int
    lost: int
    under_replicated: int
    unsealed: int
    awaited: int
    incomplete: int
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., winners: _Optional[bytes] = ..., upload: _Optional[bytes] = ..., winners_digest: _Optional[bytes] = ..., maps: _Optional[int] = ..., partitions: _Optional[int] = ..., data_bytes: _Optional[int] = ..., manifest: _Optional[bytes] = ..., manifest_bytes: _Optional[int] = ..., epochs: _Optional[int] = ..., lost: _Optional[int] = ..., under_replicated: _Optional[int] = ..., unsealed: _Optional[int] = ..., awaited: _Optional[int] = ..., incomplete: _Optional[int] = ...) -> None: ...

class AddCopies(_message.Message):
    __slots__ = ("key", "manifest_version", "manifest", "upload", "data_bytes", "lost", "under_replicated", "unsealed", "awaited")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    DATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    UNSEALED_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    manifest_version: int
    manifest: bytes
    upload: bytes
    data_bytes: int
    lost: int
    under_replicated: int
    unsealed: int
    awaited: int
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., manifest_version: _Optional[int] = ..., manifest: _Optional[bytes] = ..., upload: _Optional[bytes] = ..., data_bytes: _Optional[int] = ..., lost: _Optional[int] = ..., under_replicated: _Optional[int] = ..., unsealed: _Optional[int] = ..., awaited: _Optional[int] = ...) -> None: ...

class Unregister(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ("instance", "one_shuffle", "shuffle")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ONE_SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    one_shuffle: bool
    shuffle: int
    def __init__(self, instance: _Optional[bytes] = ..., one_shuffle: _Optional[bool] = ..., shuffle: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("upload", "number", "parts", "data")
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    upload: bytes
    number: int
    parts: int
    data: bytes
    def __init__(self, upload: _Optional[bytes] = ..., number: _Optional[int] = ..., parts: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("header", "worker", "application", "shuffle", "head", "gone", "upload", "client", "end", "arrays")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    worker: Worker
    application: Application
    shuffle: Shuffle
    head: Head
    gone: Gone
    upload: Upload
    client: Client
    end: End
    arrays: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., worker: _Optional[_Union[Worker, _Mapping]] = ..., application: _Optional[_Union[Application, _Mapping]] = ..., shuffle: _Optional[_Union[Shuffle, _Mapping]] = ..., head: _Optional[_Union[Head, _Mapping]] = ..., gone: _Optional[_Union[Gone, _Mapping]] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ..., client: _Optional[_Union[Client, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., arrays: _Optional[_Iterable[int]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("time_ms", "index", "workers_made", "applications_made", "forgotten_index", "state_id", "state_index")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    WORKERS_MADE_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_MADE_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_INDEX_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_INDEX_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    index: int
    workers_made: int
    applications_made: int
    forgotten_index: int
    state_id: int
    state_index: int
    def __init__(self, time_ms: _Optional[int] = ..., index: _Optional[int] = ..., workers_made: _Optional[int] = ..., applications_made: _Optional[int] = ..., forgotten_index: _Optional[int] = ..., state_id: _Optional[int] = ..., state_index: _Optional[int] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("id", "uid", "name", "incarnation", "host", "rack", "data_address", "http_address", "directories", "boot_id", "version", "alive", "changed_ms", "started_index", "boot_index", "kept_index", "place", "draining_ms", "machine_id", "tags", "leaves_ms", "gone")
    ID_FIELD_NUMBER: _ClassVar[int]
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
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_INDEX_FIELD_NUMBER: _ClassVar[int]
    BOOT_INDEX_FIELD_NUMBER: _ClassVar[int]
    KEPT_INDEX_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_MS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    LEAVES_MS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    id: int
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
    alive: bool
    changed_ms: int
    started_index: int
    boot_index: int
    kept_index: int
    place: str
    draining_ms: int
    machine_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    leaves_ms: int
    gone: bool
    def __init__(self, id: _Optional[int] = ..., uid: _Optional[bytes] = ..., name: _Optional[str] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., rack: _Optional[str] = ..., data_address: _Optional[str] = ..., http_address: _Optional[str] = ..., directories: _Optional[_Iterable[_Union[Directory, _Mapping]]] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., alive: _Optional[bool] = ..., changed_ms: _Optional[int] = ..., started_index: _Optional[int] = ..., boot_index: _Optional[int] = ..., kept_index: _Optional[int] = ..., place: _Optional[str] = ..., draining_ms: _Optional[int] = ..., machine_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., leaves_ms: _Optional[int] = ..., gone: _Optional[bool] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("holder", "lease_ms", "marked_ms")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MARKED_MS_FIELD_NUMBER: _ClassVar[int]
    holder: bytes
    lease_ms: int
    marked_ms: int
    def __init__(self, holder: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., marked_ms: _Optional[int] = ...) -> None: ...

class Application(_message.Message):
    __slots__ = ("instance", "name", "user", "created_ms", "serial", "leases", "spark_id", "tags", "ui_url")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    SPARK_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    UI_URL_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    name: str
    user: str
    created_ms: int
    serial: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    spark_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    ui_url: str
    def __init__(self, instance: _Optional[bytes] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., created_ms: _Optional[int] = ..., serial: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., spark_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., ui_url: _Optional[str] = ...) -> None: ...

class Shuffle(_message.Message):
    __slots__ = ("key", "kind", "partitions", "maps", "copies_wanted", "copies", "ack", "created_ms", "winners_digest", "data_bytes", "committed_ms", "created_index", "lost", "under_replicated", "unsealed", "manifest_version", "awaited", "avoid", "ack_copies")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    COPIES_WANTED_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    WINNERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    UNSEALED_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    ACK_COPIES_FIELD_NUMBER: _ClassVar[int]
    key: ShuffleKey
    kind: int
    partitions: int
    maps: int
    copies_wanted: int
    copies: int
    ack: int
    created_ms: int
    winners_digest: bytes
    data_bytes: int
    committed_ms: int
    created_index: int
    lost: int
    under_replicated: int
    unsealed: int
    manifest_version: int
    awaited: int
    avoid: _containers.RepeatedScalarFieldContainer[int]
    ack_copies: int
    def __init__(self, key: _Optional[_Union[ShuffleKey, _Mapping]] = ..., kind: _Optional[int] = ..., partitions: _Optional[int] = ..., maps: _Optional[int] = ..., copies_wanted: _Optional[int] = ..., copies: _Optional[int] = ..., ack: _Optional[int] = ..., created_ms: _Optional[int] = ..., winners_digest: _Optional[bytes] = ..., data_bytes: _Optional[int] = ..., committed_ms: _Optional[int] = ..., created_index: _Optional[int] = ..., lost: _Optional[int] = ..., under_replicated: _Optional[int] = ..., unsealed: _Optional[int] = ..., manifest_version: _Optional[int] = ..., awaited: _Optional[int] = ..., avoid: _Optional[_Iterable[int]] = ..., ack_copies: _Optional[int] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("instance", "shuffle", "generation", "shuffles", "state")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SHUFFLES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    shuffle: int
    generation: int
    shuffles: int
    state: int
    def __init__(self, instance: _Optional[bytes] = ..., shuffle: _Optional[int] = ..., generation: _Optional[int] = ..., shuffles: _Optional[int] = ..., state: _Optional[int] = ...) -> None: ...

class Gone(_message.Message):
    __slots__ = ("instance", "time_ms")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    instance: bytes
    time_ms: int
    def __init__(self, instance: _Optional[bytes] = ..., time_ms: _Optional[int] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("name", "started_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    started_ms: int
    def __init__(self, name: _Optional[bytes] = ..., started_ms: _Optional[int] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("id", "packed")
    ID_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    packed: bytes
    def __init__(self, id: _Optional[bytes] = ..., packed: _Optional[bytes] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    def __init__(self, records: _Optional[int] = ...) -> None: ...
