"""Renders the roles' templates for hosts of an inventory as Ansible would, with Jinja alone: for tests without Ansible.

What it knows of Ansible is what the roles use: variables that name variables, groups and their variables, `hostvars`,
and the filters and tests below. What a host gets here it gets from Ansible; tests/ansible/test_hosts.py is where that
is seen.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined
from jinja2.nativetypes import NativeEnvironment
from jinja2.runtime import Context

from tests.support.tree import ROOT

ANSIBLE = ROOT / "deploy" / "ansible"
ROLES = ANSIBLE / "roles"
EXAMPLE = ANSIBLE / "inventory" / "example"


def load(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text("utf-8"))


@dataclass(frozen=True)
class Later:
    """A variable that is worked out when something asks for it."""

    variables: Variables
    raw: Any


class _LateContext(Context):
    """Works out variables as templates ask for them."""

    def resolve_or_missing(self, key: str) -> Any:
        found = super().resolve_or_missing(key)
        return found.variables.worked_out(found.raw) if isinstance(found, Later) else found


class _Native(NativeEnvironment):
    context_class = _LateContext


class _Text(Environment):
    context_class = _LateContext


def _combine(first: Mapping[str, Any], *others: Mapping[str, Any], recursive: bool = False) -> dict[str, Any]:
    found = dict(first)
    for other in others:
        for key, value in other.items():
            both = recursive and isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = _combine(found[key], value, recursive=True) if both else value
    return found


def role_filters(role: str) -> dict[str, Any]:
    """The filters that a role brings, from its own file, as Ansible loads them."""
    found: dict[str, Any] = {}
    for path in sorted((ROLES / role / "filter_plugins").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= module.FilterModule().filters()
    return found


def _flatten(values: list[Any]) -> list[Any]:
    return [each for value in values for each in (_flatten(value) if isinstance(value, list) else [value])]


def _prepared(environment: Environment) -> Environment:
    environment.filters |= {"to_json": json.dumps, "combine": _combine, "bool": lambda value: value in (True, "true")}
    environment.filters |= {"from_json": json.loads, "b64decode": lambda text: base64.b64decode(text).decode()}
    environment.filters |= {"flatten": _flatten, **role_filters("holdfast_worker")}
    environment.filters["regex_findall"] = lambda text, pattern: re.findall(pattern, text)
    environment.tests["match"] = lambda value, pattern: re.match(pattern, value) is not None
    environment.tests["file"] = lambda value: Path(value).is_file()
    return environment


_NATIVE = _prepared(_Native(undefined=StrictUndefined))
_TEXT = _prepared(_Text(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True))


class Variables:
    """Variables of one host, which may name one another."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._context = {name: Later(self, value) for name, value in raw.items()}

    def __getitem__(self, name: str) -> Any:
        return self.worked_out(self._context[name].raw)

    def worked_out(self, raw: Any) -> Any:
        """A value with all templates in it filled in."""
        if isinstance(raw, str) and ("{{" in raw or "{%" in raw):
            return _NATIVE.from_string(raw.strip()).render(self._context)
        if isinstance(raw, dict):
            return {key: self.worked_out(value) for key, value in raw.items()}
        if isinstance(raw, list):
            return [self.worked_out(value) for value in raw]
        return raw

    def filled(self, template: Path) -> str:
        """A template's text."""
        return _TEXT.from_string(template.read_text("utf-8")).render(self._context)


class _Of(Mapping[str, Any]):
    """`hostvars[host]`: what the inventory says of a host, without what roles have as defaults."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw, self._variables = raw, Variables(raw)

    def __getitem__(self, name: str) -> Any:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


@dataclass
class Inventory:
    """Hosts with the groups that they are in and the variables that they have from there."""

    directory: Path
    groups: dict[str, list[str]] = field(default_factory=dict)
    of: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, group: Mapping[str, Any], outer: Mapping[str, Any]) -> list[str]:
        """Take in a group with all below it; return its hosts."""
        own = self.directory / "group_vars" / f"{name}.yml"
        variables = {**outer, **group.get("vars", {}), **((load(own) or {}) if own.exists() else {})}
        found = []
        for host, said in (group.get("hosts") or {}).items():
            self.of[host] = {**self.of.get(host, {}), **variables, **(said or {})}
            found.append(host)
        for child, below in (group.get("children") or {}).items():
            found += self.add(child, below or {}, variables)
        self.groups[name] = found
        return found

    def host(self, host: str, *roles: str, **extra: Any) -> Variables:
        """All variables of a host in these roles; `extra` is what a task or the command line says."""
        raw: dict[str, Any] = {}
        for role in roles:
            raw |= load(ROLES / role / "defaults" / "main.yml")
        raw |= self.of[host]
        raw |= {
            "inventory_hostname": host,
            "inventory_hostname_short": host.partition(".")[0],
            "inventory_dir": str(self.directory),
            "groups": self.groups,
            "hostvars": {each: _Of(said) for each, said in self.of.items()},
        }
        return Variables({**raw, **extra})


def inventory(directory: Path = EXAMPLE) -> Inventory:
    """Read an inventory: hosts.yml and group_vars beside it."""
    made = Inventory(directory)
    for name, group in load(directory / "hosts.yml").items():
        made.add(name, group, {})
    return made
