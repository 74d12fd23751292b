"""The support bundle of the status page: what this master knows of the cluster, without secrets, as a .tar.gz.

Rules: who may see the page may have it, and it holds what the caller may ask for; questions are answered as any call.
One is made at a time; secrets are taken out, and it is compressed, in a thread. Called by master/api/http.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.common.config import config as configuration
from holdfast.common.config.config import Config
from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.limits import MIB
from holdfast.common.net.methods import METHODS
from holdfast.common.net.support import OF_EACH_MASTER, OF_THE_LEADER, plain
from holdfast.common.security.bundle import Bundle, file_name
from holdfast.common.security.redaction import REMOVED, Redactor, known_secrets
from holdfast.common.security.tokens import Bearer
from holdfast.common.statuses import Status
from holdfast.common.system.versions import versions
from holdfast.master.api.budgets import BudgetOwner
from holdfast.master.api.handlers import Handlers
from holdfast.master.observe.metrics import Metrics

#: Of all files, before they are compressed.
_BYTES_MAX = 16 * MIB
_ANSWER_SECONDS = 10.0


class SupportBundles:
    """Makes bundles of this master."""

    def __init__(self, config: Config, handlers: Handlers, metrics: Metrics) -> None:
        self._config = config
        self._handlers = handlers
        self._metrics = metrics
        self._turn = asyncio.Lock()

    async def make(self, caller: Bearer | None, asker: BudgetOwner) -> bytes:
        """Return a .tar.gz of at most 16 MiB before compression. Raises RetryError (BUSY) while one is made."""
        if self._turn.locked():
            raise RetryError("another support bundle is being made; try again", status=Status.BUSY)
        async with self._turn:
            folder = f"masters/{file_name(self._config.master.name)}"
            questions = {f"{folder}/{name}": each for name, each in OF_EACH_MASTER.items()}
            questions |= {f"cluster/{name}": each for name, each in OF_THE_LEADER.items()}
            found: dict[str, Any] = {"platform.json": {"versions": versions()}}
            for name, (method, request) in questions.items():
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        found[name] = await self._handlers.call(METHODS[method], request, caller, asker)
                except HoldfastError as error:
                    found[name] = error
                except TimeoutError:
                    found[name] = HoldfastError(f"no answer within {_ANSWER_SECONDS:g} s")
            found[f"{folder}/metrics.txt"] = self._metrics.text().decode()
            return await asyncio.to_thread(self._pack, folder, found)

    def _pack(self, folder: str, found: dict[str, Any]) -> bytes:
        marked = configuration.marked_in(self._config)
        bundle = Bundle(Redactor(known_secrets(marked)), _BYTES_MAX)
        removed = [each.key for each in marked if each.part == "value"]
        bundle.add_json(f"{folder}/settings.json", configuration.shown_tables(self._config, REMOVED), removed)
        for name, content in found.items():
            if isinstance(content, Exception):
                bundle.miss(name, content)
            elif isinstance(content, str):
                bundle.add_text(name, content)
            else:
                bundle.add_json(name, content if isinstance(content, dict) else plain(content))
        return bundle.finish()
