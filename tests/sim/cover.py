"""Says which branches of the storage engine and its cores a run of the simulation reaches.

    python -m tests.sim.cover [--seeds 0-99 1000000-1000049]

For each file: its branches, those that were taken, and the lines that were not reached. What no seed ever enters has a
reason in unreached.toml beside this file; exit status 1: a function has none. Played are seeds of all families.
"""

from __future__ import annotations

import argparse
import ast
import logging
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
PARTS = ("worker/storage", "worker/core")
REASONS = Path(__file__).with_name("unreached.toml")


def functions(source: str) -> dict[str, range]:
    """By qualified name the lines of each function's body."""
    found: dict[str, range] = {}

    def visit(node: ast.AST, above: str) -> None:
        for each in ast.iter_child_nodes(node):
            name = above
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{above}.{each.name}" if above else each.name
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                found[name] = range(each.body[0].lineno, (each.end_lineno or each.lineno) + 1)
            visit(each, name)

    visit(ast.parse(source), "")
    return found


def never_entered(source: str, statements: Iterable[int], missing: Iterable[int]) -> list[str]:
    """The functions of which no statement ran; those that have none, such as of a protocol, are passed over."""
    every, lost = set(statements), set(missing)
    bodies = {name: every & set(lines) for name, lines in functions(source).items()}
    return [name for name, lines in bodies.items() if lines and lines <= lost]


def reasons() -> dict[str, str]:
    """By pattern why what fits it is never entered."""
    groups = tomllib.loads(REASONS.read_text())["group"]
    return {pattern: each["reason"] for each in groups for pattern in each["functions"]}


def compared(found: Iterable[str], patterns: Iterable[str]) -> tuple[list[str], list[str]]:
    """What has no reason, and reasons for which there is nothing any more."""
    names, known = list(found), list(patterns)
    new = [name for name in names if not any(fnmatch(name, pattern) for pattern in known)]
    return new, [pattern for pattern in known if not any(fnmatch(name, pattern) for name in names)]


def _never_entered(tracer: coverage.Coverage) -> Iterator[str]:
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            _, statements, _, missing, _ = tracer.analysis2(str(path))
            for name in never_entered(path.read_text(), statements, missing):
                yield f"{path.relative_to(ROOT)}:{name}"


def main() -> int:
    """Play seeds under a tracer, and tell."""
    parts = [str(ROOT / above / one / "*") for one in PARTS for above in ("", "holdfast")]
    tracer = coverage.Coverage(branch=True, concurrency="greenlet", include=parts, data_file=None)
    tracer.start()
    from tests.sim.families import add_seeds  # what is imported before is not seen
    from tests.sim.scenario import run_seed

    parser = argparse.ArgumentParser(prog="python -m tests.sim.cover", description=__doc__)
    add_seeds(parser, 300)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for span in args.seeds:
        for seed in span:
            violation = run_seed(seed)[0]
            if violation:
                print(f"seed {seed}: {violation}", flush=True)
    tracer.stop()
    tracer.report(show_missing=True, file=sys.stdout)
    new, old = compared(_never_entered(tracer), reasons())
    for pattern in old:
        print(f"reached by now, or gone: {pattern}")
    for name in new:
        print(f"never entered, and no reason is given: {name}")
    print(f"VERDICT: {len(new)} functions are never entered without a reason")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
