"""Builds commands and states for the tests of the masters' core: short names, sensible defaults."""

from typing import Any

from holdfast.common.formats.layouts import MapAssignment, MapWinner, MapWinners
from holdfast.common.formats.reduce_layouts import Location, ReduceLocations
from holdfast.common.ids import AttemptId, Epoch, Generation, Instance, ShuffleId, ShuffleKey, WorkerId
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.apply import apply
from holdfast.master.core.state.moves import EpochMove, pack_moves
from holdfast.master.core.state.records import Answer, Directory
from holdfast.master.core.state.state import State
from holdfast.master.state_machine.codec import encode_command, join_entry


def sixteen(text: str) -> bytes:
    """An id of 16 bytes that reads well in a failure."""
    return text.encode().ljust(16, b".")


I1, I2 = sixteen("i1"), sixteen("i2")
H1, H2 = sixteen("h1"), sixteen("h2")
C1, C2 = sixteen("c1"), sixteen("c2")


def key(shuffle: int = 1, generation: int = 0, instance: bytes = I1) -> ShuffleKey:
    return ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(generation))


def application(instance: bytes = I1, holder: bytes = H1, name: str = "app", lease_ms: int = 1000):
    return cmd.RegisterApplication(instance, name, "user", lease_ms, holder)


def worker(
    number: int = 1,
    incarnation: int = 1,
    name: str = "",
    directories: tuple[str, ...] = (),
    address: str = "",
    boot_id: str = "boot",
    memory: str = "",
    host: str = "",
    machine: str = "",
):
    ids = directories or (f"d{number}",)
    return cmd.RegisterWorker(
        uid=sixteen(f"w{number}"),
        name=name or f"w{number}",
        incarnation=incarnation,
        host=host or f"host{number}",
        rack="",
        data_address=address or f"127.0.0.1:{7000 + number}",
        http_address="",
        directories=tuple(
            Directory(sixteen(each), f"/{each}", "MEMORY" if each == memory else "SSD", 0) for each in ids
        ),
        boot_id=boot_id,
        version="1",
        machine_id=machine,
    )


def shuffle(of: ShuffleKey | None = None, **changed: object):
    fields: dict = {
        "key": of or key(),
        "kind": 1,
        "partitions": 4,
        "maps": 2,
        "copies_wanted": 1,
        "copies": 1,
        "ack": 1,
    }
    return cmd.RegisterShuffle(
        **{**fields, "assignment": MapAssignment((WorkerId(1), WorkerId(2))).encode(), **changed}
    )


def reduce(of: ShuffleKey | None = None, partitions: int = 4, **changed: object):
    """A shuffle of REDUCE partitions, all on worker 1 with copies on worker 2."""
    places = tuple([Location(Epoch(0), (WorkerId(1), WorkerId(2))) for _ in range(max(partitions, 1))])
    array = ReduceLocations(places).encode()
    return shuffle(
        of,
        **{
            "kind": 2,
            "partitions": partitions,
            "maps": 0,
            "copies_wanted": 2,
            "copies": 2,
            "assignment": array,
            **changed,
        },
    )


def revive(*rows: tuple[int, int], of: ShuffleKey | None = None, to: int = 3):
    """New places on one worker for (partition, failed epoch)."""
    return cmd.Revive(of or key(), pack_moves([EpochMove(partition, failed, (to,)) for partition, failed in rows], 2))


def commit_reduce(epochs: int, of: ShuffleKey | None = None, **changed: Any):
    """The commit of a generation with that many epochs."""
    return commit(of, **{"manifest": b"manifest", "epochs": epochs, **changed})


def add_copies(version: int = 0, of: ShuffleKey | None = None, **changed: Any):
    """A manifest with late copies for that version."""
    fields: dict = {"key": of or key(), "manifest_version": version, "manifest": b"with late", "upload": b""}
    return cmd.AddCopies(
        **{**fields, "data_bytes": 20, "lost": 0, "under_replicated": 0, "awaited": 0, "unsealed": 0, **changed}
    )


def commit(of: ShuffleKey | None = None, digest: bytes = b"winners", **changed: object):
    fields: dict = {"key": of or key(), "winners": b"array", "upload": b"", "winners_digest": digest}
    return cmd.Commit(**{**fields, "maps": 2, "partitions": 4, "data_bytes": 10, **changed})


def winners(worker: int, maps: int = 1, partitions: int = 4, attempt: int = 7, size: int = 10) -> bytes:
    one = MapWinner(
        attempt=AttemptId(attempt),
        epoch=Epoch(0),
        workers=(WorkerId(worker),),
        batches=1,
        size_bytes=size,
        partitions=b"\x01" + bytes((partitions - 1) // 8),
    )
    return MapWinners(partitions, (one,) * maps).encode()


def encode_entry(entry: cmd.LogEntry) -> bytes:
    """The bytes of one place of the log."""
    return join_entry(entry.time_ms, [encode_command(command) for command in entry.commands])


class Log:
    """A state and the log that made it."""

    def __init__(self) -> None:
        self.state = State()
        self.index = 0
        self.time_ms = 1_000_000

    def do(self, body: cmd.Body, **call: Any) -> Answer:
        """Apply the next command; the state must hold together after it."""
        self.index += 1
        answer = apply(self.state, self.index, self.time_ms, cmd.Command(body, **call))
        assert self.state.check() == []
        return answer

    def call(
        self, client: bytes, number: int, body: cmd.Body, drawn: int = 0, digest: bytes = b"", **more: int
    ) -> Answer:
        """Apply a numbered call; its digest is its body's unless given."""
        reported = digest or repr(body).encode()
        return self.do(body, client=client, number=number, drawn_index=drawn, digest=reported, **more)
