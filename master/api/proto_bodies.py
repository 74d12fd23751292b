"""Bodies of calls in protobuf: bounded by what they hold and not by their length alone. Called by handlers.py.

Rules: the parser takes nanoseconds for each field, and a whole body is one call of it, which nothing interrupts: many
millions of empty fields would stop a master for longer than an election takes. So what is long may be one array, or as
many fields as a request ever has; that is counted first, and counting stops where it is too much.
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from holdfast.common.errors import ProtocolError
from holdfast.common.limits import KIB, REVIVE_EPOCHS_MAX
from holdfast.common.net.methods import LIST_BYTES_MAX, Method
from holdfast.common.statuses import Status

#: Shorter bodies cannot hold enough to be noticed.
_UNCOUNTED_BYTES = 128 * KIB
#: Fields of a request. The longest Revive has one for each partition, and one for each worker that cannot be used.
FIELDS_MAX = 2 * REVIVE_EPOCHS_MAX
_ARRAYS = (FieldDescriptor.TYPE_BYTES,)
_FIXED = {1: 8, 5: 4}


def read(method: Method, body: bytes | bytearray) -> Message:
    """Return the request of a method that is in the body. Raises ProtocolError."""
    if len(body) > method.request_bytes_max:
        raise too_long(method, method.request_bytes_max)
    if len(body) > _UNCOUNTED_BYTES:
        _check(method, body)
    request = method.request()
    try:
        request.ParseFromString(body)  # type: ignore[arg-type] # it takes what has bytes
    except DecodeError as error:
        raise _no(method, str(error)) from None
    return request


def too_long(method: Method, most: int) -> ProtocolError:
    """What is said of a body with more than `most` bytes."""
    return ProtocolError(f"a body of {method.name} has at most {most} bytes", status=Status.TOO_LARGE)


def _check(method: Method, body: bytes | bytearray) -> None:
    """Raise ProtocolError if the body is no list of fields, or has more of them than a request ever has, or more
    outside of arrays than the longest list."""
    known = method.request.DESCRIPTOR.fields_by_number
    at, count, loose, end = 0, 0, 0, len(body)
    try:
        while at < end:
            begun = at
            tag, at = _varint(body, at)
            kind = tag & 7
            if kind == 0:
                _, at = _varint(body, at)
            elif kind == 2:
                length, at = _varint(body, at)
                at += length
            else:
                at += _FIXED[kind]
            field = known.get(tag >> 3)
            count += 1
            loose += 0 if field is not None and field.type in _ARRAYS else at - begun
            if count > FIELDS_MAX or loose > LIST_BYTES_MAX:
                raise ProtocolError(f"a body of {method.name} has fewer fields", status=Status.TOO_LARGE)
    except (IndexError, KeyError):
        raise _no(method, "it cannot be read") from None
    if at != end:
        raise _no(method, "it is cut")


def _varint(body: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError


def _no(method: Method, reason: str) -> ProtocolError:
    return ProtocolError(f"the body is no {method.request.DESCRIPTOR.name}: {reason}", status=Status.BAD_REQUEST)
