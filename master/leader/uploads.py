"""Sends what is too large for one command as numbered parts, and then the command that names them.

Called by shuffles.py (assignments, winners) and sealing.py (manifests).
"""

from __future__ import annotations

import hashlib

from holdfast.common.errors import ProtocolError
from holdfast.common.limits import COMMAND_PART_BYTES, COMMAND_PARTS_MAX
from holdfast.common.statuses import Status
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Answer
from holdfast.master.leader.leader import Leader

#: How often the parts of a large call are sent again when some were missing.
_TRIES = 3


def upload_name(size: int, *identity: bytes) -> bytes:
    """Name an upload of so many bytes, the same for the same content, so that a retry continues where the first try
    was; empty if they fit into one command."""
    if size <= COMMAND_PART_BYTES:
        return b""
    return hashlib.blake2b(b" ".join(identity), digest_size=16).digest()


async def submit(leader: Leader, command: cmd.Command, upload: bytes, data: bytes) -> Answer:
    """Send `data` as the parts of `upload`, then `command`; return its answer, which is BUSY if parts got lost. Without
    a name of an upload the command has all."""
    if not upload:
        return await leader.proposer.submit(command)
    parts = [data[at : at + COMMAND_PART_BYTES] for at in range(0, len(data), COMMAND_PART_BYTES)]
    if len(parts) > COMMAND_PARTS_MAX:
        raise ProtocolError(f"an array of {len(data)} bytes is too large", status=Status.TOO_LARGE)
    answer = Answer()
    for _ in range(_TRIES):
        for number, part in enumerate(parts):
            leader.expect(await leader.proposer.submit(cmd.Command(cmd.Part(upload, number, len(parts), part))))
        answer = await leader.proposer.submit(command)
        if answer.status != Status.BUSY:
            break
    return answer
