"""Writes the tables that both languages have, from common/wire.toml and common/log_events.py, and that of
docs/use/spark.md from tests/spark/features.json: `python -m tests.write_tables`.

Tests compare each file with what would be written, so one that was forgotten, or changed by hand, is found.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.common.log_events import Level, LogEvent
from tests.docs import features, log_events
from tests.support.features import records
from tests.support.tree import ROOT

SOURCE = ROOT / "common" / "wire.toml"
_JAVA = ROOT / "client" / "jvm" / "src" / "main" / "java" / "org" / "apache" / "spark" / "shuffle" / "holdfast" / "wire"
_MADE = "Made from common/wire.toml by `python -m tests.write_tables`; change it there."
_WIDTH = 120


def source() -> dict[str, Any]:
    """What the file says."""
    return tomllib.loads(SOURCE.read_text("utf-8"))


def python_statuses(said: dict[str, Any]) -> str:
    """common/statuses.py."""
    lines = [
        '"""Numeric statuses of the wire, and what each means to whom.',
        "",
        _MADE,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import Enum, IntEnum, unique",
        "from typing import NamedTuple",
        "",
        "",
        "@unique",
        "class Status(IntEnum):",
        '    """Answers on the data plane and the control plane; the wire carries the number."""',
        "",
    ]
    for name, row in said["status"].items():
        lines.append(f"    {name} = {row['number']}" + (f"  #: {row['says']}" if "says" in row else ""))
    for word, meanings in said["word"].items():
        lines += ["", "", "@unique", f"class {word}(Enum):", f'    """{meanings["says"]}"""', ""]
        lines += [f'    {name} = "{text}"' for name, text in _meanings(meanings)]
    lines += [
        "",
        "",
        "class Meaning(NamedTuple):",
        '    """What a status means. `error` is the name of its class in errors.py, `code` what Connect calls it;',
        '    `moves_map`: the writer of a MAP file starts again on the next worker."""',
        "",
        "    next: Next",
        "    error: str",
        "    code: str",
        "    push: PushDisposition",
        "    moves_map: bool",
        "    fetch: FetchDisposition",
        "    ends: tuple[Loop, ...]",
        "",
        "",
        "#: Every status is in it.",
        "MEANINGS: dict[Status, Meaning] = {",
    ]
    for name, row in said["status"].items():
        ends = "".join(f"Loop.{each.upper()}, " for each in row.get("ends", ()))
        ends = f"({ends.rstrip(' ') if ends.count(',') == 1 else ends.rstrip(', ')})"
        cells = (
            f"Next.{row['next'].upper()}",
            f'"{row["error"]}"',
            f'"{row["code"]}"',
            f"PushDisposition.{row.get('push', 'stop').upper()}",
            f"{row.get('map') == 'move'}",
            f"FetchDisposition.{row.get('fetch', 'stop').upper()}",
            ends,
        )
        lines += _call(f"Status.{name}: Meaning", cells)
    return "\n".join([*lines, "}", ""])


def _call(head: str, given: Sequence[str]) -> list[str]:
    """An item of a table, laid out as the formatter does."""
    whole = ", ".join(given)
    if len(one := f"    {head}({whole}),") <= _WIDTH:
        return [one]
    inner = [f"        {whole}"] if len(whole) + 8 <= _WIDTH else [f"        {each}," for each in given]
    return [f"    {head}(", *inner, "    ),"]


def python_limits(said: dict[str, Any]) -> str:
    """common/limits.py."""
    lines = [
        '"""Every bound of the formats, units in the names, relations asserted at import with their reason.',
        "",
        "What an operator may change lives in config/config.py; what two processes must agree on lives here.",
        _MADE,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "KIB = 1024",
        "MIB = 1024 * KIB",
        "GIB = 1024 * MIB",
        "",
    ]
    for name, row in said["limit"].items():
        lines += [f"#: {line}" for line in textwrap.wrap(row.get("says", ""), _WIDTH - 3)]
        lines.append(f"{name} = {row['value']}")
    lines.append("")
    lines += [f'assert {each["holds"]}, "{each["why"]}"' for each in said["relation"]]
    return "\n".join([*lines, ""])


def java_statuses(said: dict[str, Any]) -> str:
    """wire/Status.java."""
    lines = [
        "package org.apache.spark.shuffle.holdfast.wire;",
        "",
        "import java.util.Map;",
        "",
        "/**",
        " * Answers of workers and masters; the wire carries the number, whose meaning never changes, and decisions",
        " * are made by it. " + _MADE.replace("`", ""),
        " */",
        "public final class Status {",
    ]
    for name, row in said["status"].items():
        lines += _java_doc(row.get("says", ""))
        lines.append(f"    public static final int {name} = {row['number']};")
    for word, meanings in said["word"].items():
        if word == "Loop":  # of all that goes on for ever the plug-in has the lease alone
            continue
        lines += ["", *_java_doc(meanings["says"]), f"    public enum {word} {{"]
        for name, text in _meanings(meanings):
            lines += [f"    {line}" for line in _java_doc(text)]
            lines.append(f"        {name},")
        lines[-1] = lines[-1].removesuffix(",")
        lines.append("    }")
    lines += [
        "",
        "    private record Meaning(",
        "            String name, Next next, PushDisposition push, FetchDisposition fetch, boolean endsLease,",
        "            boolean rerun) {}",
        "",
        "    private static final Map<Integer, Meaning> MEANINGS = Map.ofEntries(",
    ]
    for name, row in said["status"].items():
        flags = [str(flag).lower() for flag in ("lease" in row.get("ends", ()), row.get("spark") == "rerun")]
        push, fetch = row.get("push", "stop").upper(), row.get("fetch", "stop").upper()
        meaning = f'"{name}", Next.{row["next"].upper()}, PushDisposition.{push}, FetchDisposition.{fetch}'
        lines += [
            f"            Map.entry({name}, new Meaning(",
            f"                    {meaning}, {', '.join(flags)})),",
        ]
    lines[-1] = lines[-1].removesuffix(",") + ");"
    return "\n".join([*lines, _JAVA_METHODS])


_JAVA_METHODS = """
    private static final Meaning UNKNOWN =
            new Meaning(null, Next.FINAL, PushDisposition.STOP, FetchDisposition.STOP, false, false);

    private Status() {}

    private static Meaning of(int status) {
        return MEANINGS.getOrDefault(status, UNKNOWN);
    }

    /** The name of a status, for messages to people. */
    public static String name(int status) {
        return known(status) ? of(status).name() : "unknown status " + status;
    }

    /** Whether this program has the number. */
    public static boolean known(int status) {
        return MEANINGS.containsKey(status);
    }

    /** What to do next; a number from the future is FINAL, as INTERNAL is. */
    public static Next next(int status) {
        return of(status).next();
    }

    /** Whether the same call may succeed later, unchanged (a RetryError in Python). */
    public static boolean again(int status) {
        return next(status) == Next.AGAIN;
    }

    /** What a push does about it; what is not known cannot be helped by another place. */
    public static PushDisposition push(int status) {
        return of(status).push();
    }

    /** What a reader makes of it. */
    public static FetchDisposition fetch(int status) {
        return of(status).fetch();
    }

    /** Whether the renewal of a lease ends for it, where a master says it. */
    public static boolean endsLease(int status) {
        return of(status).endsLease();
    }

    /** Whether a task that reads reports a fetch failure for it, so that maps run again. */
    public static boolean rerunsMaps(int status) {
        return of(status).rerun();
    }

    /** Whether it is the token that was refused for good: no other try, worker or master changes that. */
    public static boolean barred(int status) {
        return status == UNAUTHENTICATED || status == FORBIDDEN;
    }
}
"""


def java_limits(said: dict[str, Any]) -> str:
    """wire/Limits.java."""
    lines = [
        "package org.apache.spark.shuffle.holdfast.wire;",
        "",
        "/** Bounds that both sides of the wire agree on. " + _MADE.replace("`", "") + " */",
        "public final class Limits {",
        "    public static final int KIB = 1024;",
        "    public static final int MIB = 1024 * KIB;",
        "",
    ]
    rows = {name: row for name, row in said["limit"].items() if row.get("java")} | said["java"]
    for name, row in rows.items():
        lines += _java_doc(row.get("says", ""))
        lines.append(f"    public static final {row.get('type', 'int')} {name} = {row['value']};")
    return "\n".join([*lines, "", "    private Limits() {}", "}", ""])


def java_events() -> str:
    """wire/LogEvent.java, with the events that the plug-in logs."""
    used = {call.event for call in log_events.calls() if call.part == "plug-in"}
    lines = [_JAVA_EVENTS.format(made=_MADE_EVENTS.replace("`", ""))]
    for event in LogEvent:
        if event.name in used:
            level = "WARN" if event.level is Level.WARNING else event.level.name
            lines.append(f'    {event.name}("{event}", Level.{level}, "{event.sentence}"),')
    lines[-1] = lines[-1].removesuffix(",") + ";"
    return "\n".join([*lines, _JAVA_EVENT_METHODS])


_MADE_EVENTS = "Made from common/log_events.py by `python -m tests.write_tables`; change it there."
_JAVA_EVENTS = """package org.apache.spark.shuffle.holdfast.wire;

import java.util.Collection;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

/**
 * What the plug-in logs: name, level and sentence; docs/operate/log_events.md says what to do.
 * {made}
 */
public enum LogEvent {{"""
_JAVA_EVENT_METHODS = r"""
    private static final Logger LOG = LoggerFactory.getLogger("org.apache.spark.shuffle.holdfast");
    private static final Pattern PLAIN = Pattern.compile("[^\\s\"=]+");

    private final String dotted;
    private final Level level;
    private final String sentence;

    LogEvent(String dotted, Level level, String sentence) {
        this.dotted = dotted;
        this.level = level;
        this.sentence = sentence;
    }

    /** Logs this. @param facts a name and a value by turns */
    public void log(Object... facts) {
        log((Throwable) null, facts);
    }

    /** Logs this, with a traceback. */
    public void log(Throwable trace, Object... facts) {
        if (LOG.isEnabledForLevel(level)) {
            LOG.atLevel(level).setCause(trace).log(line(facts));
        }
    }

    /** The line: name, {@code key=value}, and the sentence. */
    String line(Object... facts) {
        StringBuilder line = new StringBuilder(dotted);
        for (int i = 0; i < facts.length; i += 2) {
            line.append(' ').append(facts[i]).append('=').append(quoted(text(facts[i + 1])));
        }
        return line.append(" — ").append(sentence).toString();
    }

    private static String text(Object fact) {
        if (fact instanceof Throwable error) {
            return error.getMessage() == null ? error.toString() : error.getMessage();
        }
        if (fact instanceof Collection<?> all) {
            return all.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return String.valueOf(fact);
    }

    private static String quoted(String text) {
        if (PLAIN.matcher(text).matches()) {
            return text;
        }
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\r", "\\r") + '"';
    }
}
"""


def _meanings(meanings: dict[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in meanings.items() if name != "says")


def _java_doc(text: str) -> list[str]:
    if not text:
        return []
    sentence = text[0].upper() + text[1:].removesuffix(".") + "."
    return [f"    /** {sentence} */"]


FILES = {
    ROOT / "common" / "statuses.py": python_statuses,
    ROOT / "common" / "limits.py": python_limits,
    _JAVA / "Status.java": java_statuses,
    _JAVA / "Limits.java": java_limits,
}
JAVA_EVENTS = _JAVA / "LogEvent.java"


if __name__ == "__main__":
    for path, made in FILES.items():
        path.write_text(made(source()), "utf-8")
    JAVA_EVENTS.write_text(java_events(), "utf-8")
    features.PAGE.write_text(features.documentation(records()), "utf-8")
