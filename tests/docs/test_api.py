"""The public face of the Python client is documented; tests/unit/test_config.py compares docs/use/api.md with it."""

import importlib
import inspect
import re
import sys
from typing import TypeVar

import pytest

from tests.docs.api import MODULES, documentation


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_says_what_it_is(name: str):
    """Every public name and every public method has a docstring, which the page shows."""
    if name.endswith("spark"):
        pytest.importorskip("pyspark")
    module = importlib.import_module(name)
    values = {each: getattr(module, each) for each in module.__all__}
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
