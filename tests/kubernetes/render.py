"""Renders the kustomizations of deploy/kubernetes without kubectl: as much of kustomize as they use, and no more.

Resources, a namespace for all, ConfigMaps from files and literals, and patches of operations that add or replace. The
ConfigMaps' names have no digest behind them here. `tox -e kubernetes` compares what this gives with what kubectl gives.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.tree import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
#: A folder for each cluster that can be applied.
OVERLAYS = ("base", "secured")
#: Of the whole cluster, so in no namespace.
_OF_ALL = ("Namespace", "StorageClass")
_KNOWN = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "patches"}

#: An object of the API.
Manifest = dict[str, Any]


def rendered(folder: Path) -> list[Manifest]:
    """The objects that `kubectl apply -k FOLDER` would send."""
    said = yaml.safe_load((folder / "kustomization.yml").read_text("utf-8"))
    assert set(said) <= _KNOWN, f"{folder} uses more of kustomize than this knows: {set(said) - _KNOWN}"
    objects = [each for name in said["resources"] for each in _resource(folder / name)]
    for made in said.get("configMapGenerator", ()):
        data = dict(each.split("=", 1) for each in made.get("literals", ()))
        data |= {name: (folder / name).read_text("utf-8") for name in made.get("files", ())}
        if made.get("behavior") == "merge":
            one(objects, "ConfigMap", made["name"])["data"].update(data)
        else:
            objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data})
    for patch in said.get("patches", ()):
        target = one(objects, patch["target"]["kind"], patch["target"]["name"])
        for operation in yaml.safe_load(patch["patch"]):
            _patch(target, operation)
    for each in objects:
        if each["kind"] not in _OF_ALL:
            each["metadata"]["namespace"] = said["namespace"]
    return objects


def one(objects: list[Manifest], kind: str, name: str) -> Manifest:
    """The object of this kind and name."""
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def _resource(path: Path) -> Iterator[Manifest]:
    if path.is_dir():
        yield from rendered(path)
        return
    for each in yaml.safe_load_all(path.read_text("utf-8")):
        yield copy.deepcopy(each)  # anchors would be changed together


def _patch(target: Manifest, operation: Mapping[str, Any]) -> None:
    *way, last = operation["path"].strip("/").split("/")
    place: Any = target
    for part in way:
        place = place[int(part)] if isinstance(place, list) else place[part]
    assert (operation["op"], last in place) in (("add", False), ("replace", True)), operation
    place[last] = operation["value"]
