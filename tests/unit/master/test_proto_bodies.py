"""Bodies in protobuf: what clients send is read; what would hold the parser for long is refused before it begins."""

from __future__ import annotations

import pytest

from holdfast.common.errors import ProtocolError
from holdfast.common.limits import MIB, REVIVE_EPOCHS_MAX
from holdfast.common.net.methods import LIST_BYTES_MAX, METHODS, PLAIN_BYTES_MAX
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.api.proto_bodies import FIELDS_MAX, read

COMMIT, REVIVE, STATUS = METHODS["Shuffles/Commit"], METHODS["Shuffles/Revive"], METHODS["Admin/Status"]
KEY = pb.ShuffleKey(instance=bytes(16), shuffle=1)


def test_what_clients_send_is_read() -> None:
    """The longest revive, and winners of many MiB, with all fields behind them."""
    failed = [pb.FailedEpoch(partition=each, epoch=12_345, status=123) for each in range(REVIVE_EPOCHS_MAX)]
    revive = pb.ReviveRequest(key=KEY, failed=failed, unusable_workers=range(10_000), holder=bytes(16))
    assert revive.ByteSize() < LIST_BYTES_MAX
    assert read(REVIVE, revive.SerializeToString()) == revive
    commit = pb.CommitRequest(key=KEY, winners_array=bytes(9 * MIB), holder=bytes(16))
    assert read(COMMIT, bytearray(commit.SerializeToString())) == commit


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        (REVIVE, b"\x12\x00" * (FIELDS_MAX + 1), Status.TOO_LARGE),  # empty messages
        (COMMIT, b"\x98\x06\x00" * 8 * MIB, Status.TOO_LARGE),  # fields that nobody knows
        (COMMIT, b"\x12\x80\x80\x80\x08" + bytes(16 * MIB), Status.TOO_LARGE),  # a key of 16 MiB
        (COMMIT, b"\x1a\x80\x80\x80\x08" + bytes(MIB), Status.BAD_REQUEST),  # cut
        (COMMIT, b"\x1b" * MIB, Status.BAD_REQUEST),  # groups
        (COMMIT, b"\xff" * MIB, Status.BAD_REQUEST),  # a number without end
        (REVIVE, b"\xff" * 100, Status.BAD_REQUEST),
        (STATUS, bytes(PLAIN_BYTES_MAX + 1), Status.TOO_LARGE),
    ],
)
def test_what_would_hold_the_parser_is_refused(method: object, body: bytes, status: Status) -> None:
    """Too many fields, too much outside of arrays, too long for its method, or no body at all: refused in one word."""
    with pytest.raises(ProtocolError) as refused:
        read(method, body)  # type: ignore[arg-type]
    assert refused.value.status is status
