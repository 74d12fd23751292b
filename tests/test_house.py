"""The rules of the house that no other tool checks: import rings, pure cores, sizes, words.

Each rule is a function from a source file to its breaches. It runs over the whole tree, and over planted breaches that
show that it can fail. CONTRIBUTING.md has the rules with their reasons.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from holdfast.common.version import EXTRAS
from tests.support.tree import PARTS, ROOT

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
#: Files and functions that were longer when the rule came. They may shrink; nothing may be added.
LONGER_ALLOWED: dict[str, int] = {}
PARAMETERS_MAX = 8
#: Constructors that take more: what people type, by keyword, and storage as it was when the rule came. They may shrink;
#: nothing may be added.
WIDER_ALLOWED = {
    "client/session.py::Session": 9,
    "worker/storage/engine/directory.py::StorageDirectory": 10,
}

#: Modules through which a program touches the world or chance.
WORLD = frozenset(
    "asyncio concurrent ctypes datetime fcntl http importlib io logging mmap multiprocessing os pathlib random secrets "  # noqa: SIM905
    "select selectors shutil signal socket ssl subprocess tempfile threading time urllib uuid".split()
)
WORLD_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
SKIPPED = re.compile(
    r"(^|/)(\.git|\.tox|\.venv.*|\.mypy_cache|\.pytest_cache|\.ruff_cache|\.hypothesis|\.dev|build|dist"
    r"|logs|__pycache__|spark-warehouse|.*\.egg-info)(/|$)"
)
TEXT_SUFFIXES = {
    ".py",
    ".pyi",
    ".toml",
    ".ini",
    ".md",
    ".proto",
    ".java",
    ".sh",
    ".yml",
    ".yaml",
    ".txt",
    ".json",
    ".html",
    ".css",
    "",
}
#: Name in an import statement → name of the distribution, where they differ.
DISTRIBUTIONS = {
    "google": "protobuf",
    "hdfs_native": "hdfs-native",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_status": "grpcio-status",
    "prometheus_client": "prometheus-client",
    "duckdb_extension_tpch": "duckdb-extension-tpch",
}


@dataclass(frozen=True)
class Source:
    """One file of the repository, or a planted one."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The file as Python."""
        return ast.parse(self.text, self.path)

    def at(self, node: ast.AST, what: str) -> str:
        """A breach, told the way compilers do."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {what}"


@dataclass(frozen=True)
class Import:
    """One imported module; `lazy` if inside a function."""

    node: ast.AST
    module: str
    lazy: bool

    @property
    def root(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]


def imports(source: Source) -> Iterator[Import]:
    """Yield every absolute import; `from a import b` counts as a.b, since b may be a module."""
    lazy = {id(inner) for function in functions(source) for inner in ast.walk(function)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (Import(node, name.name, id(node) in lazy) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (Import(node, f"{node.module}.{name.name}", id(node) in lazy) for name in node.names)


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the last statement, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def part_of(source: Source) -> str:
    """The top-level folder: common, master, worker, client, tests…"""
    return source.path.partition("/")[0]


def is_core(source: Source) -> bool:
    """Cores and placement: what decides and never acts."""
    return bool(re.match(r"(master|worker|client)/core/|master/placement/|tools/doctor/core/", source.path))


#: The edges of common, and what is pure among them.
EDGES_OF_COMMON = "net|proto|dfs|security|system"
PURE_THERE = r"common/dfs/(names|urls|faults|retry)\.py|common/security/tokens\.py"


def is_pure(source: Source) -> bool:
    """Cores, and common but for its edges."""
    return is_core(source) or bool(re.match(rf"common/(?!({EDGES_OF_COMMON})/)|{PURE_THERE}", source.path))


#: What each part may know of the others; common knows none. Tools start servers as processes and ask them; they read
#: directories of workers that do not run, and only where that is asked for.
MAY_KNOW = {
    "common": set(),
    "master": {"common"},
    "worker": {"common"},
    "client": {"common"},
    "tools": {"common", "client"},
}


def rings(source: Source) -> Iterator[str]:
    """master, worker and client meet in common only; common knows none of them; tools know the client."""
    part = part_of(source)
    if part not in PARTS:
        return
    for found in imports(source):
        parts = [*found.module.split("."), ""]
        if parts[0] != "holdfast" or parts[1] not in PARTS or parts[1] in {part, *MAY_KNOW[part]}:
            continue
        reads_files = part == "tools" and parts[1:3] == ["worker", "storage"] and found.lazy
        if not reads_files:
            yield source.at(found.node, f"{part} must not import {found.module}; they meet in common")


def core_imports(source: Source) -> Iterator[str]:
    """A core imports the pure part of the standard library, the pure ring of common, and cores of its own role."""
    if not is_core(source):
        return
    role = part_of(source)
    own = "core" if role != "tools" else "doctor.core"
    allowed = ("holdfast.common.", f"holdfast.{role}.{own}.", f"holdfast.{role}.placement.")
    for found in imports(source):
        if found.root == "holdfast":
            dotted = found.module + "."
            edge = dotted.startswith(("holdfast.common.net.", "holdfast.common.system.", "holdfast.common.dfs."))
            if not dotted.startswith(allowed) or edge:
                yield source.at(found.node, f"a core must not import {found.module}")
        elif found.root not in sys.stdlib_module_names:
            yield source.at(found.node, f"a core is plain Python; it must not import {found.module}")


def core_fields(source: Source) -> Iterator[str]:
    """What a core keeps has a type that a core knows: under `Any` and `object` the things of an edge get in."""
    if not is_core(source):
        return
    for made in [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]:
        for field in [node for node in made.body if isinstance(node, ast.AnnAssign)]:
            if names := {getattr(one, "id", "") for one in ast.walk(field.annotation)} & {"Any", "object"}:
                yield source.at(field, f"{made.name} keeps {names.pop()}; a core keeps plain values and ids")


def purity(source: Source) -> Iterator[str]:
    """No clock, socket, file, thread, process, chance or log in cores and in the pure ring of common; in the storage of
    a worker only behind its one door, worker/storage/env."""
    stored = source.path.startswith("worker/storage/") and not source.path.startswith("worker/storage/env/")
    if not is_pure(source) and not stored:
        return
    for found in imports(source):
        if found.root in (WORLD - {"pathlib", "uuid"} | {"lmdb"} if stored else WORLD):
            yield source.at(found.node, f"pure code must not import {found.root}; the edge passes in what is needed")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORLD_CALLS:
            yield source.at(node, f"pure code must not call {node.func.id}()")


def absolute_imports(source: Source) -> Iterator[str]:
    """Imports are absolute, and by the installed names."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield source.at(node, "relative import; write from holdfast.… import …")
    for found in imports(source):
        if found.root in PARTS:
            yield source.at(found.node, f"import holdfast.{found.module}; the folder's name alone is not importable")


def sizes(source: Source) -> Iterator[str]:
    """Files and functions stay short enough to be read at once."""
    lines = source.text.count("\n")
    if lines > LONGER_ALLOWED.get(source.path, FILE_LINES_MAX):
        yield f"{source.path}:1: {lines} lines; split it, {FILE_LINES_MAX} are the limit"
    for node in functions(source):
        if length_of(node) > LONGER_ALLOWED.get(f"{source.path}::{node.name}", FUNCTION_LINES_MAX):
            yield source.at(node, f"{node.name} has {length_of(node)} lines; {FUNCTION_LINES_MAX} are the limit")


def constructors(source: Source) -> Iterator[str]:
    """A class is made of a few things; what goes together is a frozen dataclass with a name."""
    if part_of(source) not in PARTS:
        return
    for made in [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]:
        for node in [node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]:
            given = node.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
            if count > WIDER_ALLOWED.get(f"{source.path}::{made.name}", PARAMETERS_MAX):
                yield source.at(node, f"{made.name} takes {count} parameters; {PARAMETERS_MAX} are the limit")


def promises(source: Source) -> Iterator[str]:
    """Every test says in its docstring what it promises."""
    if part_of(source) != "tests":
        return
    for node in functions(source):
        if node.name.startswith("test") and not ast.get_docstring(node):
            yield source.at(node, f"{node.name} has no docstring; say what it promises")


def sleeps(source: Source) -> Iterator[str]:
    """Tests wait for conditions with a deadline (tests/support/waiting.py), never for time to pass."""
    if part_of(source) != "tests":
        return
    for node in ast.walk(source.tree):
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name == "sleep":
            yield source.at(node, "a test must not sleep; wait for the condition with tests/support/waiting.py")


#: The shortest deadline of a test: a machine with ten busy processes beside it keeps one of 5 s waiting.
DEADLINE_MIN = 30
#: Where the argument stands that is one: of the functions in waiting.py, of asyncio, threads, processes and sockets.
DEADLINE_AT = {
    "wait_until": 2,
    "wait_until_async": 2,
    "wait_for": 1,
    "join": 0,
    "wait": 0,
    "poll": 0,
    "result": 0,
    "urlopen": 2,
    "create_connection": 1,
}
#: Turns of a loop that looks again, a wait in which something must not happen, or how long something is to go on.
SHORT_ALLOWED = (
    "tests/raft/measure.py",
    "tests/raft/process.py",
    "tests/raft/test_process.py",
    "tests/sim/",
    "tests/page/",
    "tests/drills/test_planted.py",
    "tests/unit/common/test_control_client.py",
    "tests/jvm/test_control.py",
)


def deadlines(source: Source) -> Iterator[str]:
    """No test fails because a machine is busy: what it waits for has half a minute or more."""
    if part_of(source) != "tests" or source.path.startswith(SHORT_ALLOWED):
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [each.value for each in node.keywords if each.arg in ("timeout", "seconds", "timeout_seconds")]
        given += node.args[at : at + 1] if (at := DEADLINE_AT.get(name)) is not None else []
        for value in given:
            if (
                isinstance(value, ast.Constant)
                and isinstance(value.value, int | float)
                and 0.3 <= value.value < DEADLINE_MIN
            ):
                yield source.at(value, f"{name} ends after {value.value} s, which a busy machine needs; give it 60")


def pickles(source: Source) -> Iterator[str]:
    """Nothing that is read can run code: no pickle and none of its kin outside tests."""
    if part_of(source) == "tests":
        return
    for found in imports(source):
        if found.root in {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}:
            yield source.at(found.node, f"{found.root} runs what it reads; encode with the formats of common")


def prints(source: Source) -> Iterator[str]:
    """Only the command line talks to standard output; all else logs or returns."""
    if part_of(source) not in PARTS or part_of(source) == "tools":
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield source.at(node, "print() outside the command line; log or return it")


def tasks_owned(source: Source) -> Iterator[str]:
    """Tasks are made by common/system/tasks.py, which keeps each and tells of its end, or within a TaskGroup."""
    if part_of(source) not in PARTS or source.path == "common/system/tasks.py":
        return
    for node in ast.walk(source.tree):
        called = node.func if isinstance(node, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr not in {"create_task", "ensure_future"}:
            continue
        if not (isinstance(called.value, ast.Name) and called.value.id == "tasks"):
            yield source.at(node, f"{called.attr}() leaves a task without an owner; use common/system/tasks.py")


def dependencies_declared(source: Source) -> Iterator[str]:
    """What the packages import is declared in pyproject.toml."""
    if part_of(source) not in PARTS:
        return
    for found in imports(source):
        name = DISTRIBUTIONS.get(found.root, found.root)
        if found.root not in sys.stdlib_module_names and name not in {"holdfast", "__future__", *declared()}:
            yield source.at(found.node, f"{name} is imported but not declared in pyproject.toml")


# The patterns are put together from pieces so that this file does not breach its own rules.
LEFTOVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
REGISTRY = re.compile(
    r"\b(py" + r"pi\.org|python" + r"hosted\.org|repo1?\.maven|maven\.apache\.org/maven2|npm" + r"js\.org)"
)
MACHINE = re.compile(r"(?<![\w.$}~-])/(?:ro" + r"ot|ho" + r"me|wo" + r"rk|Us" + r"ers)/[\w.]")


def words(source: Source) -> Iterator[str]:
    """No leftovers, no hosts of package registries, no paths of one machine in committed files."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        for pattern, what in (
            (LEFTOVER, "leftover; do it or describe it in an ADR"),
            (REGISTRY, "names the host of a package registry; that is for pip's configuration"),
            (MACHINE, "path of one machine"),
        ):
            if found := pattern.search(line):
                yield f"{source.path}:{number}: {found[0]!r}: {what}"


PYTHON_RULES: dict[Callable[[Source], Iterator[str]], tuple[tuple[str, str], ...]] = {
    rings: (
        ("master/service.py", "from holdfast.worker import server"),
        ("common/formats/frame.py", "import holdfast.client"),
        ("tools/cli/commands/offline.py", "from holdfast.worker.storage import index"),
        ("tools/cli/main.py", "def f():\n    from holdfast.worker import server"),
        ("client/session.py", "from holdfast.tools.cli import main"),
        ("client/session.py", "def f():\n    from holdfast.worker.storage import index"),
    ),
    core_imports: (
        ("worker/core/push.py", "import numpy"),
        ("worker/core/push.py", "from holdfast.worker.storage import index"),
        ("master/placement/spread.py", "from holdfast.common.net import ports"),
        ("master/core/state/state.py", "from holdfast.common.dfs.store import DfsStore"),
    ),
    core_fields: (
        ("worker/core/write/epochs.py", "class EpochState:\n    copy: Any = None"),
        ("master/core/usage.py", "class Usage:\n    by_path: dict[str, object]"),
    ),
    purity: (
        ("worker/core/push.py", "import time"),
        ("master/placement/spread.py", "from random import Random"),
        ("client/core/routes.py", "def f():\n    import asyncio"),
        ("common/config/config.py", "import os.path"),
        ("common/formats/frame.py", "def f():\n    return open('x')"),
        ("common/dfs/names.py", "import os"),
        ("common/security/tokens.py", "import time"),
        ("worker/storage/index/index.py", "import lmdb"),
        ("worker/storage/log/push_log.py", "def f():\n    from time import monotonic"),
    ),
    absolute_imports: (("master/service.py", "from . import http"), ("tests/x.py", "from common import ids")),
    sizes: (
        ("worker/server.py", "x = 1\n" * (FILE_LINES_MAX + 1)),
        ("worker/server.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    ),
    constructors: (
        ("worker/server/server.py", f"class A:\n    def __init__(self, {', '.join('abcdefgh')}, *, i=0): ..."),
    ),
    promises: (("tests/test_x.py", "def test_x():\n    assert True"),),
    sleeps: (
        ("tests/test_x.py", "import time\ntime.sleep(1)"),
        ("tests/test_x.py", "from asyncio import sleep\nasync def f():\n    await sleep(0)"),
    ),
    deadlines: (
        ("tests/test_x.py", "wait_until(ready, 'it', 5)"),
        ("tests/test_x.py", "urlopen(place, timeout=5.0)"),
        ("tests/test_x.py", "thread.join(10)"),
    ),
    pickles: (("worker/server.py", "import pickle"), ("client/write/writer.py", "from pickle import loads")),
    prints: (("worker/server.py", "print('ready')"),),
    tasks_owned: (
        ("worker/server.py", "import asyncio\nasync def f():\n    asyncio.create_task(g())"),
        ("client/session.py", "def f(self):\n    self._loop.create_task(g())"),
    ),
    dependencies_declared: (("worker/server.py", "import requests"),),
}
LAWFUL = (
    ("tools/cli/commands/offline.py", "def f():\n    from holdfast.worker.storage import index"),
    ("worker/storage/env/system.py", "import threading"),
    ("worker/core/push.py", "from dataclasses import dataclass\nfrom holdfast.common.ids import Epoch"),
    ("master/core/state/state.py", "from holdfast.master.placement import policy"),
    ("worker/server.py", "import asyncio\nimport lmdb\nfrom holdfast.common.net import ports"),
    ("tests/test_x.py", "import time\ndef test_x():\n    'It holds.'\n    assert time.time()"),
    ("tools/cli/main.py", "print('hello')"),
    ("worker/server.py", "async def f():\n    async with TaskGroup() as tasks:\n        tasks.create_task(g())"),
)


@cache
def sources() -> tuple[Source, ...]:
    """Every text file of the repository that is not made by tools."""
    paths = sorted(path for path in ROOT.rglob("*") if path.suffix in TEXT_SUFFIXES and path.is_file())
    names = [(path, path.relative_to(ROOT).as_posix()) for path in paths]
    return tuple(Source(name, path.read_text("utf-8")) for path, name in names if not SKIPPED.search(name))


@cache
def python_sources() -> tuple[Source, ...]:
    """Every Python file that people wrote."""
    return tuple(one for one in sources() if one.path.endswith(".py") and not re.search(r"_pb2(_grpc)?\.py$", one.path))


@cache
def project() -> dict[str, object]:
    """The [project] table of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


@cache
def declared(runtime_only: bool = False) -> frozenset[str]:
    """Names of the distributions that pyproject.toml asks for."""
    lines = list(project()["dependencies"])  # type: ignore[call-overload]
    if not runtime_only:
        lines += [line for extra in project()["optional-dependencies"].values() for line in extra]  # type: ignore[attr-defined]
    return frozenset(names_of(lines))


@pytest.mark.parametrize("rule", PYTHON_RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_the_rule(rule):
    """No Python file of the repository breaches the rule."""
    breaches = [breach for source in python_sources() for breach in rule(source)]
    assert not breaches, "\n".join([rule.__doc__, *breaches])


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [(rule, path, text) for rule, planted in PYTHON_RULES.items() for path, text in planted],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_rule_finds_a_planted_breach(rule, path, text):
    """Each rule finds what was planted for it, so its silence means something."""
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(("path", "text"), LAWFUL)
def test_lawful_code_passes_all_rules(path, text):
    """Code that keeps the rules is left alone by all of them."""
    assert [breach for rule in PYTHON_RULES for breach in rule(Source(path, text))] == []


def test_words_of_committed_files():
    """No file holds leftovers, hosts of package registries or paths of one machine."""
    breaches = [breach for source in sources() for breach in words(source)]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize("text", ["# TO" + "DO: later", "https://py" + "pi.org/simple", "cd /ho" + "me/me/holdfast"])
def test_words_finds_a_planted_breach(text):
    """The check of words can fail."""
    assert list(words(Source("docs/x.md", text)))


def test_allowances_are_still_needed():
    """What was once too long and has become short leaves the list, so that it cannot grow again."""
    lengths = {source.path: source.text.count("\n") for source in python_sources()}
    for source in python_sources():
        lengths |= {f"{source.path}::{node.name}": length_of(node) for node in functions(source)}
    assert {name: lengths.get(name) for name in LONGER_ALLOWED} == LONGER_ALLOWED


def module_of(path: str) -> str:
    """The name under which a file of the packages is imported."""
    return ".".join(["holdfast", *Path(path).with_suffix("").parts]).removesuffix(".__init__")


def circles(files: Mapping[str, Source]) -> list[list[str]]:
    """Modules, by name, that import one another in a circle, wherever in a file the imports stand."""
    graph: dict[str, set[str]] = {}
    for name, source in files.items():
        found = {each.module if each.module in files else each.module.rpartition(".")[0] for each in imports(source)}
        graph[name] = (found & files.keys()) - {name}
    order = TopologicalSorter(graph)
    try:
        order.prepare()
    except CycleError as error:
        return [error.args[1]]
    return []


def test_no_module_imports_itself_by_way_of_others():
    """There is no circle of imports in the packages; lazy imports and those for types count."""
    assert circles({module_of(one.path): one for one in python_sources() if part_of(one) in PARTS}) == []


def test_a_planted_circle_is_found():
    """A circle of three files, one link of which is lazy and one for types alone, is found."""
    texts = {
        "a": "def f():\n    from holdfast.worker import b",
        "b": "if TYPE_CHECKING:\n    from holdfast.worker.c import C",
        "c": "from holdfast.worker.a import f",
        "d": "from holdfast.worker import a, b, c",
    }
    planted = {f"holdfast.worker.{name}": Source(f"worker/{name}.py", text) for name, text in texts.items()}
    (circle,) = circles(planted)
    assert {name.rpartition(".")[2] for name in circle} == {"a", "b", "c"}


def test_every_part_has_its_link():
    """holdfast/ has a relative link for each part, so that every tool finds the packages, and the names of the top."""
    links = {path.name: str(path.readlink()) for path in (ROOT / "holdfast").iterdir() if path.is_symlink()}
    assert links == {part: f"../{part}" for part in PARTS}
    others = {path.name for path in (ROOT / "holdfast").iterdir()} - {*PARTS, "__pycache__"}
    assert others == {"__init__.py", "py.typed"}


def test_every_part_is_typed_and_every_folder_a_package():
    """Each part says that it has types, and each folder with Python files is a regular package."""
    assert [part for part in PARTS if not (ROOT / part / "py.typed").is_file()] == []
    folders = {Path(one.path).parent for one in python_sources() if part_of(one) in PARTS}
    assert [folder for folder in folders if not (ROOT / folder / "__init__.py").is_file()] == []


#: Files of one folder, `__init__` left out: more are not taken in at a glance.
FOLDER_FILES_MAX = 17
#: Those that are, for now.
FULL_FOLDERS: set[str] = set()


def test_no_folder_is_full():
    """A newcomer finds a module by its folder: no folder of the packages has more files than one takes in at once."""
    counts = Counter(Path(one.path).parent.as_posix() for one in python_sources() if part_of(one) in PARTS)
    assert {folder for folder, count in counts.items() if count > FOLDER_FILES_MAX + 1} == FULL_FOLDERS


def test_every_extra_that_is_named_brings_the_package():
    """What common/version.py tells people to install has the package that was missing."""
    extras = project()["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert DISTRIBUTIONS.get(package, package) in names_of(extras[extra]), (package, extra)  # type: ignore[index]


def names_of(lines: Iterable[str]) -> set[str]:
    """Names of the distributions that these lines ask for."""
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in lines}  # type: ignore[index]


def test_every_dependency_has_its_reason():
    """docs/internals/adr/0002-dependencies.md names each distribution that pyproject.toml asks for."""
    reasons = (ROOT / "docs/internals/adr/0002-dependencies.md").read_text("utf-8").lower()
    assert sorted(name for name in declared() - {"holdfast"} if f"`{name}`" not in reasons) == []


def test_every_runtime_dependency_is_used():
    """What a bare install brings is imported somewhere in the packages."""
    used = {found.root for source in python_sources() if part_of(source) in PARTS for found in imports(source)}
    used_names = {DISTRIBUTIONS.get(name, name) for name in used}
    assert sorted(declared(runtime_only=True) - used_names) == []
