"""kubectl renders what render.py does, and the API's schemas take every object: for `tox -e kubernetes`.

The schemas are those of the package kubernetes-validate, which that environment alone has.
"""

import importlib.util
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.kubernetes.render import KUBERNETES, OVERLAYS, Manifest, one, rendered
from tests.support.tree import ROOT

#: The oldest API that all of it is for, and a new one.
VERSIONS = ("1.25", "1.37")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None, reason="needs schemas: run `tox -e kubernetes`"
)


def validate(each: Manifest, version: str) -> None:
    """Raise what the schemas say of an object; keys that they do not have are wrong, too."""
    import kubernetes_validate

    kubernetes_validate.validate(each, version, strict=True)


def volumes() -> list[Manifest]:
    """What docs/operate/kubernetes.md shows."""
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text("utf-8")
    return [each for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_takes_every_object(overlay: str, version: str) -> None:
    """Each is valid by the schemas of both versions."""
    for each in rendered(KUBERNETES / overlay):
        validate(each, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_takes_what_the_page_shows(version: str) -> None:
    """So are the objects in the documentation, and volumes there are of a class that is there."""
    found = volumes()
    for each in found:
        if each["apiVersion"] != "kustomize.config.k8s.io/v1beta1":
            validate(each, version)
    (volume,) = (each for each in found if each["kind"] == "PersistentVolume")
    one(rendered(KUBERNETES / "base"), "StorageClass", volume["spec"]["storageClassName"])


def test_the_schemas_refuse_a_mistake() -> None:
    """A misspelt key, and a value of another type, are found."""
    for key, value in (("minReadySecond", 10), ("replicas", "three")):
        made = one(rendered(KUBERNETES / "base"), "StatefulSet", "holdfast-master")
        made["spec"][key] = value
        with pytest.raises(Exception, match=r"minReadySecond|three"):
            validate(made, VERSIONS[-1])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubectl_renders_the_same(overlay: str) -> None:
    """What the other tests look at is what `kubectl apply -k` sends, but for the digests in names of ConfigMaps."""
    command = ["kubectl", "kustomize", str(KUBERNETES / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = re.sub(r"(name: holdfast-(?:settings|environment))-[a-z0-9]{10}\b", r"\1", done.stdout)
    assert text != done.stdout
    assert by_name(list(yaml.safe_load_all(text))) == by_name(rendered(KUBERNETES / overlay))


def by_name(objects: list[Manifest]) -> dict[tuple[Any, Any], Manifest]:
    """Objects by kind and name."""
    return {(each["kind"], each["metadata"]["name"]): stripped(each) for each in objects}


def stripped(value: Any) -> Any:
    """Texts of several lines without what YAML's two ways to end them differ by."""
    if isinstance(value, dict):
        return {key: stripped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [stripped(each) for each in value]
    return value.rstrip("\n") if isinstance(value, str) else value
