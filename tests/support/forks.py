"""Runs a function in a forked child, for what may end its process: kills at chosen points, damaged indexes."""

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DiedError(Exception):
    """The child was killed, or ended itself, without an answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the child ended with status {os.waitstatus_to_exitcode(status)}")
        self.exitcode = os.waitstatus_to_exitcode(status)


def start(function: Callable[[], object]) -> tuple[int, int]:
    """Fork; return (pid, descriptor its answer comes from). The child dies after SECONDS_MAX at the latest."""
    ready, answer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(answer)
        return pid, ready
    status = 1
    try:
        os.close(ready)
        signal.alarm(120)
        with os.fdopen(answer, "wb") as out:
            out.write(pickle.dumps(function()))
        status = 0
    except BaseException:  # noqa: BLE001  # whatever it is, the parent must see it, and the child must not return
        traceback.print_exc()
    finally:
        os._exit(status)


def finish(pid: int, ready: int) -> object:
    """Wait for the answer of a child; raises DiedError."""
    with os.fdopen(ready, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(pid, 0)
    if status or not answer:
        raise DiedError(status)
    return pickle.loads(answer)  # noqa: S301  # from our own child


def forked(function: Callable[[], T]) -> T:
    """Run `function` in a child and return its answer, which must be picklable; raises DiedError."""
    return finish(*start(function))  # type: ignore[return-value]  # it is what the function returned
