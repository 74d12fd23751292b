"""The public face of the Python client is documented; tests/unit/test_config.py compares docs/use/api.md with it."""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import is_dataclass
from importlib.metadata import version
from inspect import signature
from types import ModuleType, UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import pytest
from google.protobuf.message import Message

import holdfast
from holdfast.client import MapShuffle, MapStatus, Session, WorkerInfo
from holdfast.client.connection.ticket import Ticket
from holdfast.client.read.manifests import Manifest
from tests.docs.api import MODULES, documentation


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_says_what_it_is(name: str):
    """Every public name and every public method has a docstring, which the page shows."""
    if name.endswith("spark"):
        pytest.importorskip("pyspark")
    module = importlib.import_module(name)
    values = {each: getattr(module, each) for each in module.__all__ if each != "__version__"}
    for each, value in list(values.items()):
        if inspect.isclass(value):
            values |= {
                f"{each}.{key}": one for key, one in vars(value).items() if inspect.isfunction(one) and key[0] != "_"
            }
    assert [each for each, value in values.items() if not inspect.getdoc(value)] == []


def test_signatures_name_no_type_variables():
    """A signature that is inherited from a generic class has the types of the public class."""
    pytest.importorskip("pyspark")
    variables = {
        each
        for name in MODULES
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value)
        for base in value.__mro__
        for each, one in vars(sys.modules[base.__module__]).items()
        if isinstance(one, TypeVar) and base.__module__.startswith("holdfast")
    }
    assert "Manifest_co" in variables
    assert [each for each in variables if re.search(rf"\b{each}\b", documentation())] == []


def test_connect_takes_what_a_session_takes():
    """The arguments and defaults of `holdfast.connect` are those of Session."""
    assert signature(holdfast.connect).parameters == signature(Session).parameters


def test_types_and_names_agree():
    """Each public name is there, and is imported for type checkers, who see nothing else of these packages."""
    pytest.importorskip("pyspark")
    for module in map(importlib.import_module, MODULES):
        for each in set(module.__all__) - {"__version__"}:
            if hasattr(module, "_HOMES"):
                assert imported(module, each) is getattr(module, each)
    assert holdfast.__version__ == version("holdfast")
    assert {"connect", "client"} <= set(dir(holdfast))
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'no_such_name'"):
        holdfast.no_such_name  # type: ignore[attr-defined] # noqa: B018


def test_signatures_name_no_protobuf():
    """No public function, property or attribute, nor any of the classes that these name, has a type of protobuf."""
    pytest.importorskip("pyspark")
    public = [getattr(module, each) for module in map(importlib.import_module, MODULES) for each in module.__all__]
    seen = named(public)
    assert {Session, MapShuffle, Manifest, WorkerInfo, Ticket, MapStatus} <= seen
    assert [each for each in seen if each.__module__.endswith("_pb2") or issubclass(each, Message)] == []
    assert Message in named([WithMessage])


class WithMessage:
    """What the test must find."""

    @property
    def messages(self) -> "list[Message]":
        """A list."""
        return []


def named(values: Iterable[Any]) -> set[type]:
    """These classes, and all that public members of them, or these functions, name in their annotations."""
    found: set[type] = set()
    left = list(values)
    while left:
        value = left.pop()
        if (get_origin(value) and value is not Generic) or isinstance(value, UnionType):
            left += [each for each in (get_origin(value), *get_args(value)) if not isinstance(each, str)]
        elif inspect.isfunction(value):
            left += hints(value).values()
        elif isinstance(value, TypeVar):
            left += [value.__bound__] if value.__bound__ else []
        elif inspect.isclass(value) and value not in found:
            found.add(value)
            if value.__module__.startswith(("holdfast", "tests")):
                made = () if is_dataclass(value) else ("__init__",)
                public = [member for each, member in vars(value).items() if each[0] != "_" or each in made]
                left += [each.fget if isinstance(each, property) else each for each in public]
                left += [each.__func__ for each in public if isinstance(each, classmethod | staticmethod)]
                left += [each for name, each in hints(value).items() if name[0] != "_"]
                left += vars(value).get("__orig_bases__", value.__bases__)
    return found


def hints(value: Any) -> dict[str, Any]:
    """Its annotations, with those that are imported for type checkers alone."""
    missing: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(value, localns=missing)
        except NameError as error:
            name = str(error.name)
            missing[name] = imported(sys.modules[value.__module__], name)


def imported(module: ModuleType, name: str) -> Any:
    """What the module imports for type checkers under this name."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and name in [each.asname or each.name for each in node.names]:
            return getattr(importlib.import_module(str(node.module)), name)
    raise AssertionError(f"{module.__name__} does not import {name}")
