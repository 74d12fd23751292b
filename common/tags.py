"""Tags, which make pools of workers: a shuffle that is confined to some goes to workers that have all of them.

Rules: pure. A tag is short and plain, so that lists of them can be written with commas. Used by the configuration,
clients and masters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.common.limits import TAGS_MAX

#: What a tag looks like.
TAG = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


def tags_problem(tags: Sequence[str]) -> str:
    """Say what is wrong with some tags; "" if nothing is."""
    if len(tags) > TAGS_MAX:
        return f"{len(tags)} tags are too many: there may be {TAGS_MAX}"
    wrong = [each for each in tags if not re.fullmatch(TAG, each)]
    if not wrong:
        return ""
    return f"{wrong[0][:80]!r} is no tag: 1 to 63 letters, digits, dots, underscores and dashes, no sign of these first"


def named(tags: Iterable[str]) -> str:
    """Tags as a sentence names them: the tag ssd, the tags etl and ssd."""
    *others, last = sorted(tags)
    return f"the tags {', '.join(others)} and {last}" if others else f"the tag {last}"
