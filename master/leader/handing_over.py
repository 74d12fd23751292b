"""Hands the leadership over on request: before an upgrade or a restart of the leader.

Rules: only the time of the election is chosen here, whom a majority follows is decided by Raft as ever; so a wish that
does not come true leaves everything as it was. Called by the service Admin.
"""

from __future__ import annotations

import asyncio

from holdfast.common.errors import RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.api.statuses import bad_request
from holdfast.master.leader.leader import Leader
from holdfast.master.raft.errors import RaftError

#: An election among connected masters takes milliseconds; a longer one has another cause.
_ELECTED_SECONDS = 3.0
_LOOK_SECONDS = 0.01


async def hand_over(leader: Leader, request: pb.HandOverRequest) -> pb.HandOverReply:
    """Hand over to `request.to`, or to the master with the longest log. Raises RetryError if none could take it."""
    own, names = leader.config.master.name, [peer.name for peer in leader.config.master.peers]
    for wanted in filter(None, (request.to, request.away_from)):
        if wanted not in names:
            raise bad_request(f"there is no master {wanted}; the masters are {', '.join(names)}")
    if request.to and request.to == request.away_from:
        raise bad_request(f"{request.to} cannot lead and not lead: name two masters")
    if request.to == own or (request.away_from and request.away_from != own):
        return pb.HandOverReply(leader=own, before=own)
    if len(names) == 1:
        raise bad_request("this cluster has one master: it cannot hand over")
    try:
        over = await asyncio.wrap_future(leader.node.transfer_leadership(request.to or None))
    except RaftError as error:
        raise RetryError(f"{own} is ending: {error}") from error
    if not over:
        raise RetryError(
            f"{request.to or 'no other master'} does not have the whole log yet, or is not connected: {own} "
            "remains the leader; check `holdfast status` and try again"
        )
    return pb.HandOverReply(leader=await _elected(leader), before=own)


async def _elected(leader: Leader) -> str:
    """Return the next leader. Raises RetryError if it is not known in time."""
    own = leader.config.master.name
    try:
        async with asyncio.timeout(_ELECTED_SECONDS):
            # Raft's thread knows it first, and reports nothing before it has a new leader.
            while (now := leader.node.status().leader) in (None, own) and not leader.serving:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise RetryError("this master is no longer the leader, and no other leader is known; try again") from None
    if now in (None, own):
        raise RetryError(f"{own} was elected again; ask again")
    return str(now)
