"""Every status and all garbage, fed to the loops of a client and a worker that must not end: the renewal of a lease,
registering and heartbeats."""

import contextlib
import socket
from collections import Counter
from pathlib import Path

from holdfast.client import Session
from holdfast.client.cluster.local import local_cluster
from holdfast.common.net.methods import METHODS
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import MEANINGS, Loop, Next, Status
from tests.support.garbage import GARBAGE, Listener, http
from tests.support.waiting import wait_until

#: Of a worker and of a session; each has to be answered with each fault.
BEAT, REGISTER, RENEW = "Registry/Heartbeat", "Registry/RegisterWorker", "Shuffles/RenewLease"
PROTO = "application/proto"


class Master(Listener):
    """The only master of a cluster, as far as the loops go; answers them with the fault of the moment."""

    def __init__(self, cluster_id: str, port: int) -> None:
        self.cluster_id = cluster_id
        #: a name of GARBAGE, a status, or None: all is well
        self.fault: str | Status | None = None
        #: calls answered with the fault of the moment, and well, by method
        self.faulty: Counter[str] = Counter()
        self.well: Counter[str] = Counter()
        super().__init__("", port)

    def set(self, fault: str | Status | None) -> None:
        """Answer so from now on."""
        self.fault = fault
        self.faulty.clear()
        self.well.clear()

    def _play(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(30)
            while (asked := self._read(connection)) is not None:
                fault = self.fault
                if asked == "Shuffles/Discover":
                    connection.sendall(self._good(asked))
                elif fault is None:
                    self.well[asked] += 1
                    connection.sendall(self._good(asked))
                else:
                    self.faulty[asked] += 1
                    if isinstance(fault, str):
                        connection.sendall(GARBAGE[fault] or b"")
                        break
                    named = {"Holdfast_Status": str(int(fault)), "Holdfast_Cluster": self.cluster_id}
                    connection.sendall(http(503, b'{"message": "so it is"}', "application/json", -1, **named))
        except OSError:
            pass  # the other side went first, or the test ended
        finally:
            self._end(connection)

    def _read(self, connection: socket.socket) -> str | None:
        """The method of the next call; None at the end."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65_536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        size = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        while len(body) < size:
            body += connection.recv(65_536)
        return head.split(b" ", 2)[1].decode().removeprefix("/holdfast.v1.")

    def _good(self, method: str) -> bytes:
        reply = METHODS[method].reply()
        fields = reply.DESCRIPTOR.fields_by_name
        own = pb.MasterInfo(name="m", http=self.address, leader=True)
        known = {
            "cluster_id": self.cluster_id,
            "raft_index": 1_000,
            "worker": 1,
            "heartbeat_ms": 100,
            "lease_ms": 1_000,
            "name": "m",
            "leader_http": self.address,
        }
        for name, value in known.items():
            if name in fields:
                setattr(reply, name, value)
        if isinstance(reply, pb.DiscoverReply):
            reply.masters.append(own)
        return http(200, reply.SerializeToString(), PROTO, -1, Holdfast_Cluster=self.cluster_id)


def test_a28_no_answer_ends_a_loop_that_must_not_end(tmp_path: Path) -> None:
    """Whatever a session's renewals and a worker's registration and heartbeats are answered, they go on: when all is
    well again the lease is renewed and the worker beats. APPLICATION_GONE alone ends the lease."""
    refusals = {each: meaning for each, meaning in MEANINGS.items() if meaning.next is not Next.DONE}
    statuses = [each for each, meaning in refusals.items() if Loop.LEASE not in meaning.ends]
    quiet = {"silence", "a reset"}  # the same to a client as hanging up, and the former takes its whole deadline
    faults: list[str | Status] = [*(each for each in GARBAGE if each not in quiet), *statuses]
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(local_cluster(1, 1, dir=tmp_path / "cluster"))
        master = cluster.masters[0]
        master.kill()
        port = int(master.address.rpartition(":")[2])
        played = stack.enter_context(Master((cluster.directory / "cluster").read_text(), port))
        session = Session(master.address, app="endless")
        for fault in faults:
            played.set(fault)
            wait_until(lambda: played.faulty[RENEW], f"renewals that hear {fault!r}", 60)
            wait_until(lambda: played.faulty[BEAT] + played.faulty[REGISTER], f"a worker that hears {fault!r}", 60)
            played.set(None)
            wait_until(lambda: played.well[RENEW], f"renewals after {fault!r}", 60)
            assert session._gone is None, fault
            assert cluster.workers[0].running, fault
        wait_until(lambda: played.well[BEAT] > 1, "heartbeats", 60)
        played.set(Status.APPLICATION_GONE)
        wait_until(lambda: session._gone is not None, "the end of the lease", 60)
