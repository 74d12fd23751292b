"""A master's view of the masters: names, addresses, the leader, connections. Called by the other services."""

from __future__ import annotations

from holdfast.common.config.config import Config
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.raft.node import RaftStatus


class Masters:
    """The masters of the configuration; this one's ports are known once it listens."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.grpc = ""
        self.http = ""
        #: the digest of the secret for Admin/Status (common/agreement.py)
        self.secret_digest = ""

    def infos(self, status: RaftStatus, serving: bool) -> list[pb.MasterInfo]:
        """Return one entry for each master. gRPC addresses are only known to each master itself."""
        infos = []
        for peer in self._config.master.peers:
            own = peer.name == self._config.master.name
            there = status.peers.get(peer.name)
            infos.append(
                pb.MasterInfo(
                    name=peer.name,
                    http=(self.http if own else "") or str(peer.http),
                    grpc=self.grpc if own else "",
                    leader=serving if own else (not serving and status.leader == peer.name),
                    reachable=own or (there is not None and there.connected),
                )
            )
        return infos
