"""A store in a local folder, through pyarrow's file system: no path in it leaves the folder.

Rules: of every path the parts below the store's folder are looked at, and a symbolic link among them is an error, as a
special file is: what a link names is no part of the store, and is neither read nor removed. The folder itself may be
reached by one. Each method blocks as pyarrow's does and raises what that raises, OSError for those. Called by store.py,
in threads of calls.py.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast.common.system.links import refuse_foreign


def remove_empty(path: str, base: str) -> None:
    """Remove a folder that has nothing in it. Raises OSError."""
    refuse_foreign(path, base)
    os.rmdir(path)


class LocalFolder:
    """The methods that a store uses."""

    def __init__(self, filesystem: Any, base: str) -> None:
        self._filesystem = filesystem
        self._base = base

    def get_file_info(self, asked: Any) -> Any:
        """Of a path, of several, or of what is in a folder."""
        for each in asked if isinstance(asked, list) else [getattr(asked, "base_dir", asked)]:
            self._check(each)
        return self._filesystem.get_file_info(asked)

    def open_input_file(self, path: str) -> Any:
        """For reading at any offset."""
        self._check(path)
        return self._filesystem.open_input_file(path)

    def open_output_stream(self, path: str) -> Any:
        """Anew."""
        self._check(path)
        return self._filesystem.open_output_stream(path)

    def delete_file(self, path: str) -> None:
        """One that is not there is an error."""
        self._check(path)
        self._filesystem.delete_file(path)

    def delete_dir(self, path: str) -> None:
        """With all that is in it; of a link in it the link."""
        self._check(path)
        self._filesystem.delete_dir(path)

    def move(self, source: str, target: str) -> None:
        """Give a file another name."""
        self._check(source)
        self._check(target)
        self._filesystem.move(source, target)

    def _check(self, path: str) -> None:
        refuse_foreign(path, self._base)
