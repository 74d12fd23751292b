"""Host names, addresses, ports and web addresses in the one form that people write.

Names are ASCII; one with other letters is written in its form xn--…, as name servers have it. Called by the
configuration and by callers that take endpoints.
"""

from __future__ import annotations

import re

_NAME = r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?"
_HOST = re.compile(rf"{_NAME}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?")
_ADDRESS = re.compile(rf"(?:\[[0-9A-Fa-f:.]+\]|{_NAME}):([0-9]{{1,5}})")
#: Characters of RFC 3986.
_WEB_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
#: What the system takes for a name.
_CHARS_MAX = 253


def is_host(text: str) -> bool:
    """Whether the text is a name, or an address of IPv4 or IPv6 without brackets."""
    return len(text) <= _CHARS_MAX and _HOST.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether the text is "host:port", with an IPv6 address in brackets."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and len(text) <= _CHARS_MAX + 6 and 0 < int(found[1]) < 65_536


def is_web_address(text: str) -> bool:
    """Whether a page may link to this: an address of http or https, and nothing that runs in a browser."""
    return _WEB_ADDRESS.fullmatch(text) is not None
