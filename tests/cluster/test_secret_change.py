"""The cluster's secret is changed server by server, under a session that goes on."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path

import pytest

from holdfast.client import Credentials, LocalCluster, Session, local_cluster
from holdfast.common.errors import UnauthenticatedError
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import Keeper, TokenKind
from tests.support.waiting import wait_until

LIFE_S = 3_600


def write(path: Path, secret: str) -> None:
    """Put a secret where its owner alone reads it."""
    path.touch(mode=0o600)
    path.write_text(secret)


def user_of(cluster: LocalCluster, secret: str) -> Credentials:
    """An admin's credentials, made with this secret."""
    keeper = Keeper(secret.encode(), (cluster.directory / "cluster").read_text())
    assert cluster.credentials is not None
    return cluster.credentials.with_token(keeper.mint(TokenKind.ADMIN, b"ops", int(time.time()), LIFE_S))


async def alive(cluster: LocalCluster, credentials: Credentials) -> int:
    """How many workers are alive, for whom shows this."""
    async with ControlClient(cluster.endpoints, credentials) as client:
        reply = await client.call("Admin/ListWorkers", pb.ListWorkersRequest(), deadline_s=30.0)
        return sum(each.state == "alive" for each in reply.workers)


def round_trip(session: Session, number: int) -> None:
    """Write and read one shuffle of this application."""
    shuffle = session.register_reduce_shuffle(number, 1)
    with shuffle.writer(0) as writer:
        writer.write(0, b"kept %d" % number)
        statuses = [writer.close()]
    shuffle.commit(statuses)
    assert [bytes(each.payload) for each in shuffle.reader([0])] == [b"kept %d" % number]


def restart_all(cluster: LocalCluster, session: Session, credentials: Credentials, number: int) -> None:
    """One server after the other; the session works after each."""
    for server in [*cluster.masters, *cluster.workers]:
        server.stop()
        server.start()

        def well() -> bool:
            return asyncio.run(alive(cluster, credentials)) == len(cluster.workers)

        wait_until(well, f"the cluster to be well after {server.name}", 60.0)
        round_trip(session, number)
        number += 1


def test_the_secret_changes_without_a_stop(tmp_path: Path) -> None:
    """Three masters and two workers take the next secret, then go by it, then forget the one before, each by a restart
    of one server after the other. The session of before goes on throughout and reads what it wrote at first; what was
    made with the old secret is refused in the end, and not earlier."""
    other = tmp_path / "other"
    after = secrets.token_hex(32)
    write(other, after)
    settings = {"cluster": {"other_secret_file": str(other)}, "lease": {"application": "6s"}}
    with local_cluster(3, 2, dir=tmp_path / "cluster", settings=settings, secure=True) as cluster:
        assert cluster.credentials is not None
        file = cluster.directory / "secret"
        before = file.read_text().strip()
        old, new = user_of(cluster, before), user_of(cluster, after)
        with Session(cluster.endpoints, app="long", credentials=cluster.credentials) as session:
            round_trip(session, 1)
            assert asyncio.run(alive(cluster, new)) == 2
            write(file, after)
            write(other, before)
            restart_all(cluster, session, old, 10)
            ticket = session.ticket.credentials
            assert ticket is not None
            keeper = Keeper(after.encode(), (cluster.directory / "cluster").read_text())

            def renewed() -> bool:
                try:
                    keeper.verify(ticket.token, time.time())
                except UnauthenticatedError:
                    return False
                return True

            wait_until(renewed, "the session's token to be of the new secret", 30.0)
            write(other, after)
            restart_all(cluster, session, new, 20)
            assert [bytes(each.payload) for each in session.open_reduce_shuffle(0).reader([0])] == [b"kept 1"]
            with pytest.raises(UnauthenticatedError, match="not made with the secret of this cluster"):
                asyncio.run(alive(cluster, old))
