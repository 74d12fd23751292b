"""Looks into folders of servers that run: files and folders may go while one looks."""

import os
from pathlib import Path


def files_below(root: Path) -> list[Path]:
    """All files below a folder, none if it is not there."""
    # Path.rglob raises for a folder that goes while it looks, os.walk goes on.
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
