"""A master alone: its log is applied at once. For tests of services that need the real leader and nothing else."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from holdfast.common.config.config import from_tables
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Answer
from holdfast.master.leader.leader import Leader
from holdfast.master.raft.member import Applied
from holdfast.master.state_machine.state_machine import StateMachine


class Node:
    """A master alone: what is proposed is applied at once."""

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.machine = StateMachine(self.changed)
        self.applied = 0

    def changed(self, subjects: Any) -> None:
        if self.leader is not None:
            self.leader.waiters.wake(subjects)

    def local(self, read: Any) -> Any:
        return read(self.machine)

    def status(self) -> Any:
        return SimpleNamespace(leader="m1", applied_index=self.applied)

    def read(self, read: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(read(self.machine))
        return future

    def propose(self, entry: bytes) -> Future[Applied]:
        self.applied += 1
        future: Future[Applied] = Future()
        future.set_result(Applied(self.applied, 1, self.machine.apply(self.applied, 1, entry)))
        return future


def leader_of(node: Node, **tables: Any) -> Leader:
    peers = [{"name": "m1", "raft": "localhost:1", "http": "localhost:2"}]
    config = from_tables(
        {
            "cluster": {"id": "c"},
            "master": {"name": "m1", "directory": "/nowhere", "peers": peers},
            "placement": {"quarantine_errors": 1},
            **tables,
        }
    )

    def fail(error: BaseException) -> None:
        raise error

    node.leader = Leader(config, node, fail)  # type: ignore[arg-type]
    return node.leader


async def do(leader: Leader, *bodies: cmd.Body) -> list[Answer]:
    """Apply these, which must not be refused."""
    return [leader.expect(await leader.proposer.submit(cmd.Command(body))) for body in bodies]
