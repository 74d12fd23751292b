"""The version of Holdfast, as servers and the CLI tell it, and how to get what a part of it needs.

The distribution's version (pyproject.toml) is the same.
"""

VERSION = "0.1.0"


def installing(extra: str) -> str:
    """Return what brings an extra. No package index has Holdfast before its first release, so a clone comes first."""
    return f"pip install '.[{extra}]' in a clone of Holdfast, or 'holdfast[{extra}]' from a wheelhouse that has it"
