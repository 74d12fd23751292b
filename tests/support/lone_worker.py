"""A worker process whose masters do not exist, and that takes itself for registered: for raw frames, and nothing else.

    python -m tests.support.lone_worker --config worker.toml

Its number is the one in its directories (KeptIdentity). It deletes nothing, as nobody tells it what may go.
"""

from __future__ import annotations

from typing import Any

from holdfast.worker.main import main
from holdfast.worker.server.services.data_server import DataServer


def _begin_registered(self: Any, known: bool) -> None:
    assert known, "a number was written into its directories"
    self.accept(True)
    self._standing.registered = True


if __name__ == "__main__":
    DataServer.begin_unregistered = _begin_registered  # type: ignore[method-assign]
    main()
