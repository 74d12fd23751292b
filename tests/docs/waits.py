"""Finds every place in the sources where something waits; run it to see them: `python -m tests.docs.waits`.

What counts is the call that waits: of asyncio, of threads, of processes, of sockets and selectors, and in Java of
monitors, locks, futures and selectors. A call of a function that waits inside is no place of its own. Tools that
people run (the command line, local clusters, benchmarks) are left out: their user sees them wait.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from tests.support.tree import ROOT

PARTS = ("common", "client", "worker", "master")
_TOOLS = ("client/cluster/", "common/system/process.py")
_JAVA = "client/jvm/src/main/java/org/apache/spark/shuffle/holdfast/"
_ASYNCIO = frozenset({"wait", "wait_for", "sleep", "shield", "gather", "run_in_executor", "to_thread"})
#: Methods of the events, locks and queues of asyncio, when they are awaited.
_AWAITED = frozenset({"wait", "get", "put", "acquire", "drain", "read", "readexactly", "create_connection", "join"})
_BLOCKING = frozenset({"wait", "acquire", "sleep", "select", "recv"})
#: What is joined or asked for its result, told from strings and from futures of asyncio by its name.
_JOINED = re.compile(r"thread|job$|device|process|pool", re.IGNORECASE)
_RESULT = re.compile(r"submit\(|threadsafe\(|future|fetched|freed|synced", re.IGNORECASE)
_TURNS = re.compile(r"TaskGroup|turn|_lock|guard|reading|reloading", re.IGNORECASE)
_JAVA_WAITS = re.compile(
    r"\b(?:Thread\.sleep|wait|selector\.select|Await\.ready|parkNanos|\w*[rR]enewal\.join|lookup\.join)\("
    r"|\.(?:tryLock|lockInterruptibly|awaitTermination|tryAcquire)\("
    r"|\.get\(\w+, TimeUnit|\b\w*[fF]uture\w*\.get\(\)|\.lock\(\)"
    # The waits that others are made of.
    r"|\b(?:round|waiter|own)\.await\(|\bawait\((?:SelectionKey|wait,)|(?<![.\w])pause\((?:0|ms)?\);"
)
_JAVA_METHOD = re.compile(r"^ {4,8}(?:@\w+ )*[\w<][\w<>\[\], ?.]* (\w+)\([^;=]*$")


def places() -> set[str]:
    """`file function` of every place that waits, both languages."""
    return set(_python()) | set(_java())


def _python() -> Iterator[str]:
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "_pb2" in name or name.startswith((*_TOOLS, "client/jvm/")):
                continue
            for function in _waiting(ast.parse(path.read_text("utf-8"))):
                yield f"{name} {function}"


def _waiting(tree: ast.AST, within: tuple[str, ...] = ()) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _waiting(node, (*within, node.name))
            continue
        if (
            (isinstance(node, ast.Await) and _is_awaited(node.value))
            or (isinstance(node, ast.Call) and not isinstance(tree, ast.Await) and _blocks(node))
            or (isinstance(node, ast.AsyncWith) and any(_is_turn(each.context_expr) for each in node.items))
        ):
            yield ".".join(within)
        yield from _waiting(node, within)


def _is_awaited(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return True  # a future
    if not isinstance(value.func, ast.Attribute):
        return isinstance(value.func, ast.Name) and value.func.id == "bounded"  # of common/system/waiting.py
    owner = ast.unparse(value.func.value)
    if owner == "asyncio" or value.func.attr == "run_in_executor":
        return value.func.attr in _ASYNCIO
    return value.func.attr in _AWAITED


def _blocks(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id == "wait"  # of concurrent.futures
    method = call.func.attr
    if method not in (*_BLOCKING, "join", "result"):
        return False
    owner = ast.unparse(call.func.value)
    if method == "join":
        return bool(_JOINED.search(owner))
    if method == "result":
        return bool(_RESULT.search(owner))
    if method == "select":
        return "selector" in owner
    return owner not in ("asyncio", "locks")


def _is_turn(context: ast.expr) -> bool:
    text = ast.unparse(context)
    return not text.startswith("asyncio.timeout") and bool(_TURNS.search(text))


def _java() -> Iterator[str]:
    for path in sorted((ROOT / _JAVA).rglob("*.java")):
        name, method = path.relative_to(ROOT / _JAVA).as_posix(), ""
        for line in path.read_text("utf-8").splitlines():
            if line.lstrip().startswith(("*", "/*", "//")):
                continue
            found = _JAVA_METHOD.match(line)
            if found is not None and found[1] not in ("if", "while", "for", "switch", "catch"):
                method = found[1]
            elif _JAVA_WAITS.search(line):
                yield f"{name} {method}"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{place}\n" for place in sorted(places())))
