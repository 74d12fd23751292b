"""The control plane's methods, read from the descriptors of holdfast.proto: one table for servers and clients.

No generated stubs: a method is called by its path with the bytes of its request, over gRPC and HTTP alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB, MIB
from holdfast.common.proto import holdfast_pb2 as pb

#: Names of the metadata (gRPC) and headers (HTTP, written Holdfast-Status) of an error.
STATUS_KEY = "holdfast-status"
LEADER_KEY = "holdfast-leader"
LOWEST_KEY = "holdfast-lowest"
#: In every answer of a master, good or bad: the cluster's id as `quoted_cluster` writes it. What comes without it is no
#: master's.
CLUSTER_KEY = "holdfast-cluster"

#: A request with a list and no big array. The longest is a Revive, a CheckShuffles or a heartbeat of less than 2 MiB.
LIST_BYTES_MAX = 4 * MIB
#: One that has neither: names, numbers and ids.
PLAIN_BYTES_MAX = 64 * KIB
#: One message over gRPC, which cannot be asked how long it is before it is there. Longer requests go over HTTP.
GRPC_MESSAGE_BYTES_MAX = 1 * MIB


@lru_cache(8)
def quoted_cluster(cluster_id: str) -> str:
    """The id as headers can carry it: its UTF-8, with %XX for what is neither letter, digit nor one of `-._~`."""
    return quote(cluster_id, safe="")


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `name` is "Service/Method", `path` is the same with the package, as gRPC and HTTP write it."""

    name: str
    path: str
    request: type[Message]
    reply: type[Message]
    #: whether the request carries a CallId, so that a retry is answered from the replicated table
    is_command: bool
    #: bytes of a request at most
    request_bytes_max: int


def _methods() -> dict[str, Method]:
    found = {}
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            name = f"{service.name}/{method.name}"
            fields = method.input_type.fields_by_name
            found[name] = Method(
                name=name,
                path=f"/{service.full_name}/{method.name}",
                request=GetMessageClass(method.input_type),
                reply=GetMessageClass(method.output_type),
                is_command="call" in fields,
                request_bytes_max=_longest(fields),
            )
    return found


def _longest(fields: Any) -> int:
    """Bytes of a request with these fields."""
    if any(name.endswith("_array") for name in fields):
        return CONTROL_MESSAGE_BYTES_MAX
    return LIST_BYTES_MAX if any(field.is_repeated for field in fields.values()) else PLAIN_BYTES_MAX


METHODS = _methods()
