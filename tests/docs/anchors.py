"""Anchors of headings. Called by the test of links and by the site's hook."""

from __future__ import annotations

import re


def anchor(heading: str) -> str:
    """What a heading is called in a link, as GitHub has it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
