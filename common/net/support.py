"""What of a cluster goes into a support bundle: questions to masters, and their answers as plain JSON.

Called by `holdfast doctor --bundle`, which asks from outside, and by a master for the bundle of its page.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from holdfast.common.proto import holdfast_pb2 as pb

#: Shuffles and events at most.
_SHUFFLES_MAX = 5_000
_EVENTS_MAX = 3_000

#: What each master answers for itself, and what the leader answers, by the name of the file.
OF_EACH_MASTER: dict[str, tuple[str, Message]] = {
    "status.json": ("Admin/Status", pb.StatusRequest()),
    "events.json": ("Admin/ListEvents", pb.ListEventsRequest(limit=_EVENTS_MAX)),
}
OF_THE_LEADER: dict[str, tuple[str, Message]] = {
    "workers.json": ("Admin/ListWorkers", pb.ListWorkersRequest()),
    "shuffles.json": ("Admin/ListShuffles", pb.ListShufflesRequest(limit=_SHUFFLES_MAX)),
    "apps.json": ("Admin/ListApplications", pb.ListApplicationsRequest()),
}


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON has it: fields by their names in holdfast.proto, bytes as hex, as logs have ids."""
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {str(key): _one(item) for key, item in value.items()}
    return [_one(item) for item in value] if field.is_repeated else _one(value)


def _one(value: Any) -> Any:
    if isinstance(value, Message):
        return plain(value)
    return value.hex() if isinstance(value, bytes) else value
