"""A Raft node as a real process, driven by JSON lines over its pipes: `python -m tests.raft.process SETTINGS-JSON`.

Rules: the child dies with its parent; answers carry the number of the question and come in any order; the parent's
side is `Process`, whose calls return futures. Used by the process tests and by `measure`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from holdfast.common.security.credentials import calling_context
from holdfast.common.system.ports import free_ports
from holdfast.master.raft.node import RaftNode, RaftSettings
from holdfast.master.raft.transport import TlsContexts
from tests.support.certificates import authority
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


class ListMachine:
    """State: the commands applied, in order, and a running digest."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self._digest = blake2b()

    def apply(self, index: int, term: int, command: bytes) -> object:
        """See `StateMachine`."""
        self.applied.append(command)
        self._digest.update(command)
        return len(self.applied)

    def capture(self) -> object:
        """See `StateMachine`."""
        return list(self.applied)

    def encode(self, captured: object) -> Iterator[bytes]:
        """See `StateMachine`."""
        assert isinstance(captured, list)
        for at in range(0, len(captured), 500):
            yield b"".join(len(c).to_bytes(4, "little") + c for c in captured[at : at + 500])

    def restore(self, chunks: Iterable[bytes]) -> None:
        """See `StateMachine`."""
        whole, at = b"".join(chunks), 0
        self.__init__()  # type: ignore[misc] # a fresh state
        while at < len(whole):
            length = int.from_bytes(whole[at : at + 4], "little")
            self.apply(0, 0, whole[at + 4 : at + 4 + length])
            at += 4 + length

    def state_hash(self) -> bytes:
        """See `StateMachine`."""
        return self._digest.digest()


class Child:
    """The child's side."""

    def __init__(self, settings: dict[str, Any]) -> None:
        settings["secret"] = settings["secret"].encode()
        settings["directory"] = Path(settings["directory"])
        if files := settings.pop("tls_files", None):
            settings["tls"] = _contexts(*files)
        self.machine = ListMachine()
        self.node = RaftNode(RaftSettings(**settings), self.machine)
        self._lock = threading.Lock()

    def say(self, number: int, **answer: Any) -> None:
        """One line out."""
        with self._lock:
            sys.stdout.write(json.dumps({"n": number, **answer}) + "\n")
            sys.stdout.flush()

    def handle(self, number: int, op: str, arg: Any) -> None:
        """One line in."""
        if op == "propose":
            future = self.node.propose(arg.encode())
            future.add_done_callback(lambda f: self._tell(number, f, lambda applied: applied.index))
        elif op == "read":
            read = self.node.read(lambda machine: len(machine.applied))
            read.add_done_callback(lambda f: self._tell(number, f, lambda value: value))
        elif op == "status":
            s = self.node.status()
            digest = self.node.local(lambda machine: machine.state_hash().hex())
            keys = ("serving", "caught_up", "term", "leader", "applied_index", "snapshot_index", "role")
            value = {k: getattr(s, k) for k in keys}
            self.say(number, ok={**value, "hash": digest, "cpu": time.process_time(), "longest_turn": s.longest_turn})
        elif op == "dump":
            self.say(number, ok=[c.decode() for c in self.node.local(lambda machine: list(machine.applied))])
        elif op == "serial":
            threading.Thread(target=self._serial, args=(number, arg), daemon=True).start()
        elif op == "flood":
            threading.Thread(target=self._flood, args=(number, arg), daemon=True).start()

    def _tell(self, number: int, future: Future[Any], show: Any) -> None:
        error = future.exception()
        if error is None:
            self.say(number, ok=show(future.result()))
        else:
            self.say(number, error=type(error).__name__)

    def _serial(self, number: int, count: int) -> None:
        """One command after the other; milliseconds each."""
        times = []
        for k in range(count):
            start = time.perf_counter()
            self.node.propose(b"serial %d " % k + bytes(100)).result(10)
            times.append(1000 * (time.perf_counter() - start))
        self.say(number, ok=times)

    def _flood(self, number: int, arg: list[int]) -> None:
        """Many commands in flight at once; seconds for all."""
        count, inflight = arg
        start = time.perf_counter()
        pending: set[Future[Any]] = set()
        for k in range(count):
            pending.add(self.node.propose(b"flood %d " % k + bytes(100)))
            if len(pending) >= inflight:
                done = {f for f in pending if f.done()} or wait(pending, 10, "FIRST_COMPLETED").done
                pending -= done
        wait(pending, 30)
        self.say(number, ok=time.perf_counter() - start)

    def run(self) -> None:
        """Serve until the pipe closes."""
        self.node.start()
        self.say(0, ok="started")
        for line in sys.stdin:
            message = json.loads(line)
            self.handle(message["n"], message["op"], message.get("arg"))
        self.node.stop()


class Process:
    """The parent's side of one node; `start` again after `kill` continues on the same directory and port."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.name = settings["node_id"]
        self._child: subprocess.Popen[str] | None = None
        self._waiting: dict[int, Future[Any]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child; returns once it listens."""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.raft.process", json.dumps(self.settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "HOLDFAST_TEST_PARENT": str(os.getpid())},
        )
        started: Future[Any] = Future()
        # A table of its own for each child: the thread of a killed one must not end what the next was asked.
        self._waiting = {0: started}
        threading.Thread(target=self._listen, args=(self._child, self._waiting), daemon=True).start()
        started.result(30)

    @property
    def pid(self) -> int:
        """Process id of the running child."""
        assert self._child is not None
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether there is a child."""
        return self._child is not None

    def _listen(self, child: subprocess.Popen[str], waiting: dict[int, Future[Any]]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            message = json.loads(line)
            with self._lock:
                future = waiting.pop(message["n"], None)
            if future is not None:
                if "ok" in message:
                    future.set_result(message["ok"])
                else:
                    future.set_exception(RuntimeError(message["error"]))
        with self._lock:
            left = list(waiting.values())
            waiting.clear()
        for future in left:
            future.set_exception(RuntimeError("OutcomeUnknown"))

    def ask(self, op: str, arg: Any = None) -> Future[Any]:
        """Ask the child; the future fails with the name of the error, OutcomeUnknown if the child ended."""
        future: Future[Any] = Future()
        child = self._child
        with self._lock:
            self._count += 1
            number = self._count
            self._waiting[number] = future
            try:
                if child is None or child.stdin is None or child.poll() is not None:
                    raise BrokenPipeError
                child.stdin.write(json.dumps({"n": number, "op": op, "arg": arg}) + "\n")
                child.stdin.flush()
            except (BrokenPipeError, ValueError):
                self._waiting.pop(number, None)
                future.set_exception(RuntimeError("OutcomeUnknown"))
        return future

    def signal(self, number: int) -> None:
        """Send a signal."""
        if self._child is not None:
            os.kill(self._child.pid, number)

    def kill(self) -> None:
        """kill -9."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            assert child.stdin is not None
            try:
                child.stdin.close()
            except BrokenPipeError:
                pass  # what was buffered for it is lost with it


def _contexts(certificate: str, key: str, ca_pem: str) -> TlsContexts:
    """What a node has whose certificate and key are in these files."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(certificate, key)
    return TlsContexts(listening, calling_context(ca_pem))


class Cluster:
    """Three processes, or as many as asked for, on free ports; under TLS if asked for."""

    def __init__(self, directory: Path, nodes: int = 3, *, tls: bool = False, **settings: Any) -> None:
        if tls:
            files = authority().issue("127.0.0.1").files(directory / "tls")
            settings["tls_files"] = [*map(str, files), authority().pem]
        names = [f"m{k + 1}" for k in range(nodes)]
        peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(nodes), strict=True)}
        common = {"peers": peers, "cluster_id": "test", "secret": "a secret", **settings}
        self.nodes = [
            Process({"node_id": name, "address": peers[name], "directory": str(directory / name), **common})
            for name in names
        ]

    def __enter__(self) -> Self:
        for node in self.nodes:
            node.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes:
            node.kill()

    def leader(self) -> Process:
        """The serving leader of the highest term, waited for."""
        found = wait_until(self._leader, "a serving leader")
        assert found is not None
        return found

    def _leader(self) -> Process | None:
        found = []
        for node in self.nodes:
            try:
                status = node.ask("status").result(0.5)
            except (RuntimeError, TimeoutError):
                continue
            if status["serving"]:
                found.append((status["term"], node))
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def settled(self) -> list[dict[str, Any]]:
        """Statuses of all nodes once all have applied the same."""
        return wait_until(self._settled, "all nodes to have applied the same")

    def _settled(self) -> list[dict[str, Any]]:
        try:
            found = [node.ask("status").result(2) for node in self.nodes]
        except (RuntimeError, TimeoutError):
            return []
        equal = len({status["applied_index"] for status in found}) == 1
        return found if equal and any(status["serving"] for status in found) else []


def main() -> None:
    """Run the child."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ.get("HOLDFAST_TEST_PARENT", os.getppid())):
        sys.exit(1)  # the parent was gone before the line above
    Child(json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    main()
