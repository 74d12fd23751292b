"""The support bundle: a .tar.gz with what helps a maintainer, without secrets, and with a list of what is in it.

Rules: everything goes through the redactor on its way in; the whole is bounded before it is compressed. What could not
be gathered is listed with its error. Made in memory. Called by `holdfast doctor --bundle` and by the masters' page.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.common.limits import MIB
from holdfast.common.security.redaction import Redactor
from holdfast.common.sizes import in_bytes
from holdfast.common.system.modes import FILE_MODE
from holdfast.common.version import VERSION

#: Of all files of a bundle, before they are compressed.
BUNDLE_BYTES_MAX = 50 * MIB
#: The list of what is in it; its room is kept free of the above.
CONTENTS = "contents.json"
_CONTENTS_BYTES = MIB
_FOLDER = "holdfast-support"
_CUT = "(the beginning was cut off)\n"


class Bundle:
    """Collects files. Any thread, one at a time."""

    def __init__(self, redactor: Redactor, bytes_max: int = BUNDLE_BYTES_MAX) -> None:
        self._redactor = redactor
        self._left = bytes_max - _CONTENTS_BYTES
        self._data: list[tuple[str, bytes]] = []
        self._files: list[dict[str, Any]] = []
        self._missing: list[dict[str, str]] = []
        self._made_s = int(time.time())

    def add_json(self, name: str, document: object, already: Iterable[str] = ()) -> None:
        """Add a document; left out and listed as missing if it is too long. `already`: causes of removals that were
        made before."""
        removed = Counter(already)
        data = json.dumps(self._redactor.document(document, removed), indent=1, default=str).encode()
        if len(data) > self._left:
            self.miss(name, f"it has {in_bytes(len(data))}, and the bundle has room for {in_bytes(self._left)} more")
        else:
            self._put(name, data, removed)

    def add_text(self, name: str, text: str) -> None:
        """Add a text; the beginning is cut off if it is too long."""
        removed = Counter[str]()
        data = self._redactor.text(text, removed).encode("utf-8", "replace")
        if len(data) > self._left:
            keep = self._left - len(_CUT)
            if keep <= 0:
                self.miss(name, "the bundle is full")
                return
            data = _CUT.encode() + data[-keep:].decode("utf-8", "ignore").encode()
        self._put(name, data, removed)

    def miss(self, name: str, error: object) -> None:
        """List what could not be gathered, with the reason."""
        text = self._redactor.text(str(error) or type(error).__name__, Counter())
        self._missing.append({"name": name, "error": text[:1000]})

    def contents(self) -> dict[str, Any]:
        """What is in it: files with their bytes and what was removed of each, by cause; and what is missing."""
        return {"holdfast": VERSION, "made_s": self._made_s, "files": self._files, "missing": self._missing}

    def finish(self) -> bytes:
        """The archive, whole."""
        contents = json.dumps(self.contents(), indent=1).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=6) as tar:
            for name, data in [(CONTENTS, contents), *self._data]:
                info = tarfile.TarInfo(f"{_FOLDER}/{name}")
                info.size, info.mode, info.mtime = len(data), FILE_MODE, self._made_s
                tar.addfile(info, io.BytesIO(data))
        return archive.getvalue()

    def _put(self, name: str, data: bytes, removed: Counter[str]) -> None:
        self._left -= len(data)
        self._files.append({"name": name, "bytes": len(data), "removed": dict(removed)})
        self._data.append((name, data))


def file_name(text: str) -> str:
    """A text, such as an address, as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".")[:100] or "_"
