"""Where the repository is, and its parts."""

from pathlib import Path

PARTS = ("common", "master", "worker", "client", "tools")
ROOT = Path(__file__).resolve().parent.parent.parent
