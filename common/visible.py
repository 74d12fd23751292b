"""Makes foreign text visible: names of applications and users are any text.

Terminals obey some characters, and a newline would begin a forged line of a log. Called by the formatters of
logs and by everything that the command line prints.
"""

from __future__ import annotations

#: Control characters, those that turn the direction of writing, separators of lines, halves of characters.
_HIDDEN = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x61C,
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_ESCAPES = {code: chr(code).encode("unicode_escape").decode("ascii") for code in _HIDDEN}
_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\n\t"}
_JSON = {code: f"\\u{code:04x}" for code in _HIDDEN}


def visible(text: str) -> str:
    r"""One line in which such characters are written as Python writes them: `\x1b`, `\n`."""
    return text.translate(_ESCAPES)


def visible_lines(text: str) -> str:
    """The same of text that has lines of its own: newlines and tabs stay."""
    return text.translate(_LINES)


def visible_json(text: str) -> str:
    """JSON in one line, with such characters as JSON escapes them: it means what it meant."""
    return text.translate(_JSON)
