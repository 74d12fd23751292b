"""The control plane's methods, read from the descriptors of holdfast.proto: one table for servers and clients.

No generated stubs: a method is called by its path with the bytes of its request, over gRPC and HTTP alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from holdfast.common.proto import holdfast_pb2 as pb

#: Names of the metadata (gRPC) and headers (HTTP, written Holdfast-Status) of an error.
STATUS_KEY = "holdfast-status"
LEADER_KEY = "holdfast-leader"
LOWEST_KEY = "holdfast-lowest"


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `name` is "Service/Method", `path` is the same with the package, as gRPC and HTTP write it."""

    name: str
    path: str
    request: type[Message]
    reply: type[Message]
    #: whether the request carries a CallId, so that a retry is answered from the replicated table
    is_command: bool


def _methods() -> dict[str, Method]:
    found = {}
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            name = f"{service.name}/{method.name}"
            found[name] = Method(
                name=name,
                path=f"/{service.full_name}/{method.name}",
                request=GetMessageClass(method.input_type),
                reply=GetMessageClass(method.output_type),
                is_command="call" in method.input_type.fields_by_name,
            )
    return found


METHODS = _methods()
