"""A network that damages what workers answer costs connections, and no read and no attempt."""

import random
from collections import Counter
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import local_cluster
from holdfast.common.net.frames import client as frame_client
from tests.soak.proxy import SHOWN, Proxy
from tests.support.reduce_client import contents, push, read, records_of

ROUNDS = 12


def test_a47_a_flipped_bit_on_the_way_costs_a_connection_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only worker is behind a network that flips one bit of an answer, again and again: every attempt of both kinds
    of writers ends well, and every read is exact."""
    monkeypatch.setattr(frame_client, "SWEEP_SECONDS", 0.5)  # a length that grew is found after it
    own = {"w1": {"worker": {"address": SHOWN}}}
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", own=own) as cluster,
        Proxy([cluster.workers[0].address], 47, rate=0.0, late_seconds=0.0, swallow=False) as network,
        Session(cluster.endpoints, app="damaged") as session,
    ):
        for number in range(ROUNDS):
            data = {0: records_of(number)}
            pushed = session.register_reduce_shuffle(4, maps=1)
            network.damages = 1
            pushed.commit([push(pushed, 0, 1, data[0])])
            network.damages = 1
            assert read(pushed) == contents(data)
            written = session.register_map_shuffle(4, maps=1)
            rows = [(partition, random.Random(number).randbytes(50_000)) for partition in range(4)]
            network.damages = 1
            with written.writer(0, 1) as writer:
                status = writer.close(rows)
            written.commit([status])
            network.damages = 1
            got = Counter((each.partition, bytes(each.payload)) for each in written.reader(range(4)))
            assert got == Counter(rows)
        damaged = sum(count for what, count in network.counts.items() if what.startswith("damaged"))
        assert damaged >= 3 * ROUNDS
