"""JSON that others wrote, read strictly: what it holds can be sent on, compared and counted like our own.

Rules: UTF-8 and nothing else; no halves of surrogate pairs, which are no text; no NaN and no infinities, which JSON
does not have. Any fault is a ValueError with a sentence. Called by readers of JSON that came over a network
or from a person.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

#: Text can have half of a pair only with one of these.
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes | bytearray) -> Any:
    """Return what the JSON holds. Raises ValueError."""
    try:
        document = json.loads(data.decode("utf-8"), parse_float=_finite, parse_constant=_refuse)
        if _ESCAPED_HALF.search(data):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which is no text: escape both halves, or none") from None
    return document


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")
