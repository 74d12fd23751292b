"""Finds every place in the sources that logs, and writes docs/operate/log_events.md from them and the catalogue.

A place that logs names its event as `LogEvent.NAME`, in both languages; nothing else may log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from holdfast.common.log_events import MEANINGS, REPORT, Level, LogEvent
from tests.support.tree import PARTS, ROOT

JAVA = "client/jvm/src/main/java/"
#: The two that log for all others, the catalogue, and what shortens a library's own log.
LOGGERS = ("common/system/log.py", "common/log_events.py")
LIBRARIES = ("common/net/http_server.py",)
#: Keys of a line in JSON, which no fact may have.
RESERVED = frozenset({"time", "level", "event", "message", "exception", "logger", "left_out"})
_LOGGING = frozenset({"log_event", "Happened", "tell", "partial"})
_JAVA_EVENT = re.compile(r"\bLogEvent\.([A-Z][A-Z0-9_]*)\b")
_JAVA_CALL = re.compile(r"\bLogEvent\.([A-Z][A-Z0-9_]*)\s*\.log\(([^;]*)\);", re.DOTALL)
_JAVA_FACT = re.compile(r'(?:^|,)\s*"([a-z_]+)",')
_JAVA_OTHERS = re.compile(r"\b(?:LoggerFactory|org\.slf4j|internal\.Logging|System\.(?:err|out)|printStackTrace)\b")


@dataclass(frozen=True)
class Call:
    """A place that logs an event, or says to the masters that it happened; `kept` for `holdfast events`."""

    place: str
    event: str
    facts: tuple[str, ...] = ()
    kept: bool = False

    @property
    def part(self) -> str:
        """Who logs it, for people."""
        part = self.place.partition("/")[0]
        return "plug-in" if self.place.startswith("client/jvm/") else "all" if part == "common" else part


@cache
def files() -> dict[str, str]:
    """Path and text of all sources that log or could."""
    found = {}
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if "_pb2" in name or name.endswith("/wire/LogEvent.java"):
                continue
            if path.suffix == ".py" or (path.suffix == ".java" and name.startswith(JAVA)):
                found[name] = path.read_text("utf-8")
    return found


@cache
def calls() -> tuple[Call, ...]:
    """All places in the sources."""
    return tuple(call for path, text in files().items() if path != LOGGERS[1] for call in calls_in(path, text))


def calls_in(path: str, text: str) -> Iterator[Call]:
    """The places of one file."""
    if path.endswith(".java"):
        java = {found[1]: tuple(_JAVA_FACT.findall(found[2])) for found in _JAVA_CALL.finditer(text)}
        yield from (Call(path, name, java.get(name, ())) for name in dict.fromkeys(_JAVA_EVENT.findall(text)))
        return
    tree = ast.parse(text, path)
    given: dict[str, list[str]] = {}
    kept = set()
    for call, scope in _logging(tree):
        facts = [fact for each in call.keywords for fact in _facts(each, scope)]
        event = call.args[-1]
        for value in scope.get(event.id, ()) if isinstance(event, ast.Name) else (event,):
            for name in _events(value):
                given.setdefault(name, []).extend(facts)
                kept |= {name} if _called(call) in ("Happened", "tell") else set()
    for name in dict.fromkeys(_events(tree)):
        yield Call(path, name, tuple(dict.fromkeys(given.get(name, ()))), name in kept)


def _logging(tree: ast.Module) -> Iterator[tuple[ast.Call, dict[str, list[ast.expr]]]]:
    """Calls that log, each with what the names in its function stand for: assigned there, or returned by a function."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    returned: dict[str, list[ast.expr]] = {}
    for function in functions:
        values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
        returned.setdefault(function.name, []).extend(values)
    for function in functions:
        scope = dict(returned)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                scope |= {
                    each.id: [*scope.get(each.id, ()), node.value]
                    for each in node.targets
                    if isinstance(each, ast.Name)
                }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args and _called(node) in _LOGGING:
                yield node, scope


def _facts(given: ast.keyword, scope: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Names of facts: one that is given itself, or the keys of a dictionary."""
    if given.arg is not None:
        yield from () if given.arg == "trace" else (given.arg,)
        return
    found = given.value.func if isinstance(given.value, ast.Call) else given.value
    for value in scope.get(getattr(found, "id", ""), ()):
        for node in ast.walk(value):
            keys = [key for key in node.keys if key is not None] if isinstance(node, ast.Dict) else []
            yield from (str(each.value) for key in keys for each in ast.walk(key) if isinstance(each, ast.Constant))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _events(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "LogEvent":
            yield node.attr


def breaches(path: str, text: str) -> Iterator[str]:
    """What logs in another way, and what names no event or facts that a line has already."""
    if path in LOGGERS:
        return
    if path.endswith(".java"):
        yield from (f"{path}: {found}: log an event of LogEvent" for found in _JAVA_OTHERS.findall(text))
    else:
        for node in ast.walk(ast.parse(text, path)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            if path not in LIBRARIES and {"logging", "warnings"} & {name.partition(".")[0] for name in names}:
                yield f"{path}:{node.lineno}: log with log_event of common/system/log.py"  # type: ignore[attr-defined]
    for call in calls_in(path, text):
        if call.event not in LogEvent.__members__:
            yield f"{path}: LogEvent.{call.event} is not in common/log_events.py"
        yield from (f"{path}: {call.event}: no fact can be called {each}" for each in RESERVED & set(call.facts))


HEAD = """# Log events

Made from `common/log_events.py` and the calls in the sources by `python -m tests.write_docs`.

A log line is `time level event.name key=value… — sentence`, or an object ([monitoring.md](monitoring.md#logs)). Names
never change: search and alert by name. *By*: who logs it (*all*: shared code). *Facts*: keys besides `reason`. Masters
keep events with a star for `holdfast events`, their page and `holdfast_master_events_total`. Without advice: `reason`
shows the cause; if a warning repeats, check the masters. An
`….internal_error` is an unexpected failure: report it. Info and debug lines need no more than their sentence.
"""
#: Not repeated with each event: the head has them.
PLAIN = ("Nothing.", REPORT, "See `reason`.", "If it repeats, check the masters.")


def documentation() -> str:
    """docs/operate/log_events.md."""
    of: dict[str, list[Call]] = {}
    for call in calls():
        of.setdefault(call.event, []).append(call)
    text = HEAD
    for level, meaning in sorted(MEANINGS.items(), reverse=True):
        columns = ("Event", "By", *(("Meaning and advice",) if level >= Level.WARNING else ()), "Facts")
        text += f"\n## {level.word.capitalize()}: {meaning}\n\n|{'|'.join(columns)}|\n{'|---' * len(columns)}|\n"
        text += "".join(
            _entry(event, of.get(event.name, [])) for event in sorted(LogEvent, key=str) if event.level is level
        )
    return text


def _entry(event: LogEvent, found: list[Call]) -> str:
    facts = ",".join(dict.fromkeys(fact for call in found for fact in call.facts if fact != "reason"))
    star = "\\*" if any(call.kept for call in found) else ""
    by = ",".join(sorted({call.part for call in found}))
    meaning = event.sentence if event.to_do in PLAIN else f"{event.sentence} {event.to_do}"
    if event.dotted.endswith("internal_error") and event.to_do == REPORT:
        meaning = ""  # the head has it
    cells = (
        f'<a id="{event}"></a>`{event}`{star}',
        by,
        *((meaning,) if event.level >= Level.WARNING else ()),
        f"`{facts}`" if facts else "",
    )
    return f"|{'|'.join(cells)}|\n"
