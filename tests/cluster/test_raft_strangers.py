"""Strangers at the Raft ports of a secured cluster: they keep no master out, and learn nothing there."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from holdfast.client import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import ask
from holdfast.common.errors import HoldfastError
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from tests.attack import raft_port
from tests.attack.beside import beside, honest_job
from tests.attack.target import Attack, Target, log_of, target_of
from tests.support.logged import lines_of
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and a worker with security, which all tests here share."""
    with local_cluster(3, 1, dir=tmp_path_factory.mktemp("strangers") / "cluster", secure=True) as started:
        honest_job(started)
        yield started


def status(cluster: LocalCluster, master: Server) -> pb.StatusReply | None:
    """What a master says of itself; None if it does not answer."""
    try:
        return ask(master.address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 2.0, cluster.credentials)
    except HoldfastError:
        return None


def is_back(cluster: LocalCluster, master: Server) -> bool:
    """Whether a master follows or leads again, with all that the leader has applied."""
    leader = status(cluster, cluster.leader())
    found = status(cluster, master)
    return (
        leader is not None
        and found is not None
        and bool(found.leader_http)
        and (found.applied_index >= leader.applied_index > 0)
    )


@pytest.mark.parametrize("attack", [raft_port.silent, raft_port.half_way])
def test_a19_strangers_at_the_raft_port_keep_no_master_out(cluster: LocalCluster, attack: Attack) -> None:
    """While strangers hold 64 connections to each Raft port, silent or half way through a handshake, every master is
    killed and started in turn, and is back in the quorum; an honest client's job goes on, and its data is exact."""

    async def beside_restarts(target: Target, until: Callable[[], bool]) -> Counter[str]:
        done = until()
        attacking = asyncio.ensure_future(attack(target, lambda: done))
        try:
            for master in cluster.masters:
                await asyncio.to_thread(restart, master)
        finally:
            done = True
        return await attacking

    def restart(master: Server) -> None:
        master.kill()
        master.start()
        wait_until(lambda: is_back(cluster, master), f"{master.name} to be back", 60)

    reported, _ = beside(cluster, beside_restarts, tries=1)
    assert reported["opened"] >= 64 * len(cluster.masters)
    for master in cluster.masters:
        assert "Traceback" not in log_of(master)
        assert 0 < len(lines_of(master.log, LogEvent.RAFT_PEER_REFUSED)) < 100


def test_a23_the_raft_port_tells_strangers_nothing(cluster: LocalCluster) -> None:
    """Whatever a stranger says at a Raft port, also with the right names: no cluster's id, no master's name, and
    nothing that was made with the secret comes back."""
    target = asyncio.run(target_of(cluster))
    names = [master.name.encode() for master in cluster.masters]
    cluster_id = target.cluster_id.encode()
    secret = (cluster.directory / "secret").read_bytes().strip()
    lowest, highest = min(names), max(names)
    port = target.raft[names.index(lowest)]
    all_names = b"".join(bytes([len(each)]) + each for each in (cluster_id, highest, lowest))
    tried = [
        [raft_port.hello(1, b"another", highest, lowest)],
        [raft_port.hello(1, cluster_id, highest, b"nobody")],
        [raft_port.hello(1, cluster_id, b"nobody", lowest)],
        [raft_port.hello(1, cluster_id, highest, lowest)],
        [raft_port.hello(2)],
        [raft_port.hello(2), b"\x03" + bytes(32)],
        [raft_port.hello(2), b"\x03" + bytes(64)],
        [raft_port.hello(2), b"\x07" + bytes(32) + all_names],
        [b"\x05refused"],
        [b"\xff" * 100],
    ]
    for said in tried:
        heard = asyncio.run(raft_port.asked(target, port, said))
        assert heard, "the port answers"
        for name in (cluster_id, *names):
            assert name not in without_nonce(heard), (said, heard)
        assert not proofs(secret, said[0], heard, cluster_id, highest, lowest), (said, heard)


def without_nonce(heard: bytes) -> bytes:
    """What was heard, without the random bytes of a challenge, in which any name may be."""
    return heard[37:] if heard[4:5] == b"\x02" else heard


def proofs(secret: bytes, said: bytes, heard: bytes, cluster_id: bytes, caller: bytes, called: bytes) -> list[str]:
    """Which proofs of the secret are in what was heard after that hello, of the handshake as it was and as it is."""
    version, nonce, answered = said[1:3], said[3:35], heard[5:37]
    short = b"".join(bytes([len(each)]) + each for each in (cluster_id, caller, called))
    bounds = (version + short + nonce + answered, version + nonce + answered)
    found = []
    for label in (b"acceptor", b"initiator", b"welcome", b"names", b"to acceptor", b"to initiator"):
        for bound in bounds:
            made = hmac.digest(secret, b"holdfast raft " + label + b"\0" + bound, hashlib.sha256)
            if made in heard:
                found.append(label.decode())
    return found
