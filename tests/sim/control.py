"""Calls to whoever leads: what common/net/control.py promises, on the simulated network."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.common.errors import HoldfastError, NotLeaderError, RetryError
from holdfast.common.net.methods import METHODS
from holdfast.common.statuses import Status
from tests.sim.clock import pause
from tests.sim.network import Network

#: A refusal though it is a RetryError: who asked decides.
_TOLD = frozenset({Status.NOT_COMMITTED})
#: A master that says nothing is asked no longer (common/net/control.py looks at the others meanwhile); a commit waits
#: for workers that are away, a revive for a commit, and a manifest for what was asked.
TRY_SECONDS = {"Shuffles/Commit": 40.0, "Shuffles/Revive": 35.0, "Shuffles/GetManifest": 8.0}
TRY_SECONDS_ELSE = 2.0


class Control:
    """One client of the masters."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._names = [name for name in network.servers if name.startswith("m")]
        self._at = network.rng.randrange(len(self._names))
        self._client = network.rng.randbytes(16)
        self._number = 0
        self.raft_index = 0

    async def call(self, method: str, request: Any, deadline_s: float = 30.0) -> Any:
        """Try until the deadline what may succeed later, always under the same call number."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        numbered = type(request)()
        numbered.CopyFrom(request)
        if METHODS[method].is_command:
            self._number += 1
            numbered.call.client, numbered.call.number = self._client, self._number
            numbered.call.raft_index = self.raft_index
        if self._network.rng.random() < 0.3:  # it has several endpoints, and may hear first of another leader
            self._at = self._network.rng.randrange(len(self._names))
        while True:
            copy = type(request)()
            copy.CopyFrom(numbered)
            try:
                left = max(end - loop.time(), 0.01)
                reply = await self._network.ask(
                    self._names[self._at], method, copy, min(left, TRY_SECONDS.get(method, TRY_SECONDS_ELSE))
                )
            except HoldfastError as error:
                if error.status in _TOLD or not isinstance(error, RetryError | NotLeaderError):
                    raise
                if loop.time() >= end:
                    raise RetryError(f"{method}: no answer: {error}") from None
                if error.status is not Status.BUSY:
                    self._at = (self._at + 1) % len(self._names)
                await pause(self._network.rng.uniform(0.05, 0.3))
            else:
                self.raft_index = max(self.raft_index, getattr(reply, "raft_index", 0))
                return reply

    async def close(self) -> None:
        """There is nothing to close."""
