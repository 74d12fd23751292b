"""Keys of shuffles as control messages name them: one place for both directions. All callers import this."""

from __future__ import annotations

from holdfast.common.errors import ProtocolError
from holdfast.common.ids import INSTANCE_BYTES, Generation, Instance, ShuffleId, ShuffleKey, StateId
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status


def key_message(key: ShuffleKey) -> pb.ShuffleKey:
    """The message of a key."""
    return pb.ShuffleKey(instance=key.instance, shuffle=key.shuffle, generation=key.generation, state=key.state)


def key_in(message: pb.ShuffleKey) -> ShuffleKey:
    """The key of a message. Raises ProtocolError for a malformed one."""
    if len(message.instance) != INSTANCE_BYTES:
        raise ProtocolError(
            f"an application instance has {INSTANCE_BYTES} bytes, not {len(message.instance)}",
            status=Status.BAD_REQUEST,
        )
    return ShuffleKey(
        Instance(message.instance),
        ShuffleId(message.shuffle),
        Generation(message.generation),
        StateId(message.state),
    )
