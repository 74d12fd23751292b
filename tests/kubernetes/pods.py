"""Runs the pods of rendered StatefulSets as processes on this machine, as a kubelet would as far as that goes.

Environment, commands, probes, grace and files are those of the manifests, word for word, but for three things: where a
volume is mounted is a directory of the test, a name of a pod is an address of loopback that it has for itself (so all
ports are those of the manifests), and 0.0.0.0 and 127.0.0.1 are that address, too. Images, users, limits and networks
are not there: what they do is not seen here.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import Processes
from tests.kubernetes.render import Manifest, one
from tests.support.waiting import wait_until

_SECONDS = 60.0


class Node:
    """The pods of one test, and the addresses by which they know one another."""

    def __init__(self, objects: list[Manifest], directory: Path, secret: Mapping[str, bytes]) -> None:
        self.objects, self.directory, self.secret = objects, directory, secret
        sets = [each for each in objects if each["kind"] == "StatefulSet"]
        self.names = [name for each in sets for name in pod_names(each)]
        # A network of its own for each process that tests: several may run at once.
        high, low = divmod(os.getpid(), 250)
        self.addresses = {
            name: f"127.{100 + high % 150}.{1 + low}.{number}" for number, name in enumerate(self.names, start=1)
        }

    def pod(self, name: str, node: str) -> Pod:
        """The pod of this name, as it is made for a node of this name."""
        made = one(self.objects, "StatefulSet", name.rpartition("-")[0])
        return Pod(self, made, name, node)

    def address(self, name: str, port: int) -> str:
        """Where a pod listens on this machine."""
        return f"{self.addresses[name]}:{port}"


def pod_names(made: Manifest) -> list[str]:
    """The pods of a StatefulSet."""
    return [f"{made['metadata']['name']}-{number}" for number in range(made["spec"]["replicas"])]


def whole_name(made: Manifest, pod: str) -> str:
    """What a kubelet writes into the /etc/hosts of a pod of a StatefulSet."""
    return f"{pod}.{made['spec']['serviceName']}.{made['metadata']['namespace']}.svc.cluster.local"


def environment(objects: list[Manifest], container: Manifest, fields: Mapping[str, str]) -> dict[str, str]:
    """The variables of a container; `fields` is what the API knows of its pod."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= one(objects, "ConfigMap", source["configMapRef"]["name"])["data"]
    for each in container.get("env", ()):
        if "value" in each:
            # As Kubernetes does: what is not known by then stays as it is.
            found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda word: found.get(word[1], word[0]), each["value"])
        else:
            found[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
    return found


class Pod:
    """One pod: its volumes last, its containers come and go."""

    def __init__(self, node: Node, made: Manifest, name: str, where: str) -> None:
        self._node, self._made, self.name = node, made, name
        self.spec: dict[str, Any] = made["spec"]["template"]["spec"]
        (self.server,) = self.spec["containers"]
        self._fields = {"metadata.name": name, "spec.nodeName": where}
        self.address = node.addresses[name]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def volume(self, name: str) -> Path:
        """Where a volume is here."""
        return self._node.directory / self.name / name

    def start(self, processes: Processes) -> None:
        """Fill the volumes, run the first containers to their ends, and start the server."""
        for each in self.spec["volumes"]:
            folder = self.volume(each["name"])
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if "configMap" in each:
                for file, text in one(self._node.objects, "ConfigMap", each["configMap"]["name"])["data"].items():
                    (folder / file).write_text(self._here(text, self.server))
            elif "secret" in each:
                for file, data in self._node.secret.items():
                    (folder / f"..{file}").write_bytes(data)
                    (folder / file).symlink_to(f"..{file}")  # as they are there, and readable for the group
                    (folder / file).chmod(0o440)
        for claim in self._made["spec"]["volumeClaimTemplates"]:
            self.volume(claim["metadata"]["name"]).mkdir(parents=True, exist_ok=True)
        self._starts += 1
        for container in self.spec["initContainers"]:
            first = self._start(processes, container)
            assert first.wait(_SECONDS) == 0, f"{container['name']} of {self.name} failed"
        self._process = self._start(processes, self.server)

    def stop(self) -> int:
        """End it as a kubelet does, and return its exit status; its grace has to be enough."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(self.spec["terminationGracePeriodSeconds"])

    def wait_ready(self) -> None:
        """Return when its probes are good; fails where it ends before."""
        wait_until(lambda: not self.running or self.probe("startupProbe"), f"{self.name} to start", _SECONDS)
        assert self.running, f"{self.name} has ended; see its log"
        wait_until(lambda: self.probe("readinessProbe"), f"{self.name} to be ready", _SECONDS)

    @property
    def running(self) -> bool:
        """Whether the server is there."""
        return self._process is not None and self._process.poll() is None

    def probe(self, name: str) -> bool:
        """Whether a probe of the server is good now."""
        said = self.server[name]
        if "exec" in said:
            command = self.command(said["exec"]["command"], self.server)
            done = subprocess.run(command, env=self._environ(self.server), check=False, stderr=subprocess.DEVNULL)
            return done.returncode == 0
        asked = said["httpGet"]
        (port,) = (each["containerPort"] for each in self.server["ports"] if each["name"] == asked["port"])
        url = f"{asked.get('scheme', 'HTTP').lower()}://{self.address}:{port}{asked['path']}"
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS, context=anybody()) as answer:
                return bool(200 <= answer.status < 400)
        except (urllib.error.URLError, ConnectionError):
            return False

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What `kubectl exec` does with a command."""
        command, environ = self.command(list(words), self.server), self._environ(self.server)
        return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=_SECONDS)

    def command(self, words: list[str], container: Manifest) -> list[str]:
        """A command of a container, as it has to be here."""
        return [self._here(word, container) for word in words]

    def _start(self, processes: Processes, container: Manifest) -> subprocess.Popen[bytes]:
        environ = self._environ(container)
        # Nothing of this process's own settings comes along.
        command = ["env", "-i", *(f"{key}={value}" for key, value in environ.items())]
        command += self.command(container["command"], container)
        return processes.start(f"{self.name}-{container['name']}-{self._starts}", command)

    def _environ(self, container: Manifest) -> dict[str, str]:
        own = environment(self._node.objects, container, self._fields)
        image = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        image |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        return image | {key: self._here(value, container) for key, value in own.items()}

    def _here(self, text: str, container: Manifest) -> str:
        """A text of the manifests with paths and names as they are on this machine."""
        for name in self._node.names:
            made = one(self._node.objects, "StatefulSet", name.rpartition("-")[0])
            text = text.replace(whole_name(made, name), self._node.addresses[name])
        text = text.replace("0.0.0.0", self.address).replace("127.0.0.1", self.address)
        mounts = {each["mountPath"]: str(self.volume(each["name"])) for each in container["volumeMounts"]}
        return re.sub("|".join(map(re.escape, mounts)), lambda found: mounts[found[0]], text)


def anybody() -> ssl.SSLContext:
    """A kubelet believes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
