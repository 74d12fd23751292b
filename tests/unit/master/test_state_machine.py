"""The state machine: bytes in, answers out, and the same state on every master."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.moves import EpochMove, pack_moves
from holdfast.master.proto import commands_pb2 as pb
from holdfast.master.state_machine.codec import VERSION, VersionError, decode_entry
from holdfast.master.state_machine.snapshot import SnapshotError
from holdfast.master.state_machine.state_machine import StateMachine
from tests.unit.master.build import (
    H1,
    I1,
    I2,
    add_copies,
    application,
    commit,
    commit_reduce,
    encode_entry,
    key,
    reduce,
    revive,
    shuffle,
    sixteen,
    worker,
)

instances = st.sampled_from([I1, I2, b"bad"])
holders = st.sampled_from([H1, sixteen("h2"), b""])
keys = st.builds(key, st.integers(0, 2), st.integers(0, 2), st.sampled_from([I1, I2]))
lease_refs = st.lists(st.builds(cmd.LeaseRef, instances, holders), max_size=3).map(tuple)
worker_refs = st.lists(st.builds(cmd.WorkerRef, st.integers(0, 3), st.integers(0, 3)), max_size=3).map(tuple)
rows = st.lists(
    st.builds(
        EpochMove, st.integers(0, 4), st.integers(0, 2), st.tuples(st.integers(1, 3), st.integers(1, 3)), st.just(0)
    ),
    max_size=5,
)
revives = st.builds(cmd.Revive, keys, rows.map(lambda moves: pack_moves(moves, 2)))
bodies = st.one_of(
    st.builds(worker, st.integers(1, 3), st.integers(0, 3), st.sampled_from(["", "w1"])),
    st.builds(
        worker,
        st.integers(1, 3),
        st.integers(1, 3),
        host=st.sampled_from(["a", "b"]),
        machine=st.sampled_from(["", "m", "n"]),
    ),
    st.builds(cmd.SetWorkersAlive, st.booleans(), worker_refs, worker_refs),
    st.builds(cmd.SetWorkersDraining, st.booleans(), worker_refs),
    st.builds(
        cmd.PlaceWorkers,
        st.lists(st.builds(cmd.WorkerPlace, st.integers(0, 3), st.sampled_from(["/a/b", "/a/c"])), max_size=3).map(
            tuple
        ),
    ),
    st.builds(application, instances, holders, st.sampled_from(["a", "b"]), st.integers(0, 5_000)),
    st.builds(cmd.Attach, instances, st.sampled_from(["a", "b"]), st.integers(0, 5_000), holders),
    st.builds(cmd.Detach, instances, holders),
    st.builds(cmd.MarkLeases, st.booleans(), lease_refs),
    st.builds(cmd.EndLeases, lease_refs),
    st.builds(shuffle, keys, partitions=st.integers(0, 5), maps=st.integers(0, 2), copies_wanted=st.integers(0, 3)),
    st.builds(commit, keys, st.sampled_from([b"x", b"y"]), winners=st.binary(max_size=9)),
    st.builds(commit, keys, winners=st.just(b""), upload=st.sampled_from([b"u", b"v"])),
    st.builds(reduce, keys, st.integers(1, 4), copies_wanted=st.integers(1, 2), lost_before=st.booleans()),
    revives,
    st.builds(cmd.MoveEpochs, st.lists(revives, max_size=3).map(tuple)),
    st.builds(
        commit_reduce,
        *(st.integers(1, 6), keys),
        partitions=st.integers(1, 4),
        lost=st.integers(0, 2),
        under_replicated=st.integers(0, 2),
        awaited=st.integers(0, 2),
        unsealed=st.integers(0, 2),
    ),
    st.builds(add_copies, st.integers(0, 2), keys, under_replicated=st.integers(0, 2), unsealed=st.integers(0, 2)),
    st.builds(add_copies, st.integers(0, 1), keys, manifest=st.just(b""), upload=st.sampled_from([b"u", b"v"])),
    st.builds(cmd.Unregister, keys),
    st.builds(cmd.Forget, instances, st.booleans(), st.integers(0, 2)),
    st.builds(cmd.Part, st.sampled_from([b"u", b"v"]), st.integers(0, 2), st.integers(0, 3), st.binary(max_size=5)),
)
commands = st.one_of(
    st.builds(cmd.Command, bodies),
    st.builds(
        cmd.Command,
        bodies,
        client=st.sampled_from([sixteen("c1"), sixteen("c2")]),
        number=st.integers(1, 6),
        drawn_index=st.integers(0, 30),
        digest=st.sampled_from([b"p", b"q"]),
        open_from=st.integers(0, 8),
    ),
)
entries = st.builds(
    cmd.LogEntry, st.integers(0, 3 * bounds.CLIENT_LIFE_MS), st.lists(commands, min_size=1, max_size=3).map(tuple)
)


@settings(max_examples=150)
@given(st.lists(entries, max_size=25), st.sets(st.integers(0, 24), max_size=3), st.integers(1, 7))
def test_snapshot_at_any_point_changes_nothing(log: list[cmd.LogEntry], restarts: set[int], cut: int):
    """Two masters that apply the same log stay equal, though one is restored from snapshots in between."""
    straight, restored = StateMachine(), StateMachine()
    for index, entry in enumerate(log, start=1):
        data = encode_entry(entry)
        assert straight.apply(index, 1, data) == restored.apply(index, 1, data)
        if index in restarts:
            image = b"".join(restored.encode(restored.capture()))
            restored = StateMachine()
            restored.restore(image[at : at + cut] for at in range(0, len(image), cut))
        assert straight.state.check() == []
    assert restored.state.check() == []
    assert straight.state_hash() == restored.state_hash()


@given(st.lists(entries, min_size=2, max_size=10))
def test_picture_does_not_change(log: list[cmd.LogEntry]):
    """What was captured is encoded as it was, whatever is applied in between."""
    machine = StateMachine()
    machine.apply(1, 1, encode_entry(log[0]))
    picture, hashed = machine.capture(), machine.state_hash()
    for index, entry in enumerate(log[1:], start=2):
        machine.apply(index, 1, encode_entry(entry))
    other = StateMachine()
    other.restore(machine.encode(picture))
    assert other.state_hash() == hashed


@given(entries)
def test_entries_come_back_from_their_bytes(entry: cmd.LogEntry):
    """Decoding gives what was encoded."""
    assert decode_entry(encode_entry(entry)) == entry


def test_hash_tells_states_apart():
    """One field of one record is enough for another hash."""
    hashes = set()
    for body in (application(), application(lease_ms=1001), application(I2), worker(), worker(2)):
        machine = StateMachine()
        machine.apply(1, 1, encode_entry(cmd.LogEntry(5, (cmd.Command(body),))))
        hashes.add(machine.state_hash())
    assert len(hashes) == 5


def test_entries_of_other_versions_are_refused():
    """A log entry of another version, of an unknown command or of no sense ends the process with a clear error."""
    machine = StateMachine()
    unknown = pb.Entry(version=VERSION, commands=[pb.Command(client=b"c")])
    for data, wanted in [
        (pb.Entry(version=VERSION + 1).SerializeToString(), f"version {VERSION + 1}"),
        (b"", "version 0"),
        (unknown.SerializeToString(), "unknown command"),
        (b"\xff\xff\xff", "not a Holdfast entry"),
    ]:
        with pytest.raises(VersionError, match=wanted):
            machine.apply(1, 1, data)


def image_of_something() -> bytes:
    machine = StateMachine()
    for index, body in enumerate(
        [
            worker(),
            application(),
            shuffle(),
            commit(),
            reduce(key(2)),
            revive((1, 0), of=key(2)),
            commit_reduce(5, key(2), maps=1),
            cmd.Part(b"u", 0, 2, b"part"),
        ],
        start=1,
    ):
        machine.apply(index, 1, encode_entry(cmd.LogEntry(index, (cmd.Command(body, sixteen("c"), index),))))
    return b"".join(machine.encode(machine.capture()))


def test_cut_and_grown_snapshots_are_refused():
    """A snapshot that ends early anywhere, or goes on, is SnapshotError and leaves the state as it was."""
    image = image_of_something()
    machine = StateMachine()
    for wrong in [
        *(image[:end] for end in range(0, len(image), 7)),
        image + b"x",
        b"HFSTATE" + bytes([VERSION + 1]) + image[8:],
    ]:
        with pytest.raises(SnapshotError):
            machine.restore([wrong])
    assert machine.state_hash() == StateMachine().state_hash()
    machine.restore([image])
    assert machine.state_hash() != StateMachine().state_hash()


@given(st.data())
def test_damaged_snapshots_never_raise_anything_else(data: st.DataObject):
    """Flipped bytes give a SnapshotError or another readable state; Raft's checksum catches the latter."""
    image = bytearray(image_of_something())
    for _ in range(data.draw(st.integers(1, 3))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    try:
        StateMachine().restore([bytes(image)])
    except SnapshotError:
        return


def test_listener_hears_what_readers_wait_for():
    """Commits and drops name their shuffle or instance; refused and other commands wake nobody."""
    heard: list[object] = []
    machine = StateMachine(heard.extend)
    for index, body in enumerate(
        [application(), shuffle(), commit(digest=b"a"), commit(digest=b"b"), cmd.Unregister(key()), cmd.Detach(I1, H1)],
        start=1,
    ):
        machine.apply(index, 1, encode_entry(cmd.LogEntry(1, (cmd.Command(body),))))
    assert heard == [key(), key(), I1]
