"""What is in deploy/kubernetes fits together, and is what servers take: rendered here, without kubectl or a cluster."""

import re
import ssl
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.client.spark import settings
from holdfast.common.config import config
from holdfast.common.config.config import Config
from holdfast.common.config.settings import SIZE_UNITS
from holdfast.common.errors import ConfigError
from holdfast.common.net.http_server import HEALTH_PATH, READY_PATH
from holdfast.common.security.authority import issue, make_ca
from holdfast.common.security.expiry import meet
from holdfast.tools.cli.main import COMMANDS
from holdfast.tools.doctor.core import spark as doctor
from holdfast.tools.doctor.core.host import _WORKER_FIXED
from tests.kubernetes.pods import environment, pod_names, whole_name
from tests.kubernetes.render import KUBERNETES, OVERLAYS, Manifest, one, rendered
from tests.support.tree import ROOT

SERVERS = ("holdfast-master", "holdfast-worker")
#: What a worker does at its end behind its drain: seals, connections, disks, with much to spare.
END_SECONDS = 25
#: As in the commands of the page that make the Secret.
SECRET_FILE = re.compile(r"--from-file=(?:\S+/)?(\S+)")


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> list[Manifest]:
    return rendered(KUBERNETES / request.param)


def servers(objects: list[Manifest]) -> list[Manifest]:
    """Both StatefulSets."""
    return [one(objects, "StatefulSet", name) for name in SERVERS]


def containers(made: Manifest) -> list[Manifest]:
    """The containers of a StatefulSet's pods; the last one is the server."""
    spec = made["spec"]["template"]["spec"]
    return [*spec["initContainers"], *spec["containers"]]


def taken(objects: list[Manifest], made: Manifest, pod: str, node: str = "n1") -> Config:
    """The configuration of a pod, as its server reads it."""
    environ = environment(objects, containers(made)[-1], {"metadata.name": pod, "spec.nodeName": node})
    text = one(objects, "ConfigMap", "holdfast-settings")["data"]["holdfast.toml"]
    # The command of workers says this one, from their disk.
    names = {"HOLDFAST_WORKER_NAME": f"{node}-1"} if made["metadata"]["name"] == "holdfast-worker" else {}
    return config.parse(text, {**environ, **names}, "holdfast.toml")


def paths(read: Config) -> set[str]:
    """The files that a configuration names."""
    found = {read.cluster.secret_file, read.security.certificate, read.security.key_file, read.security.ca}
    return found - {""}


def test_masters_take_their_settings(objects: list[Manifest]) -> None:
    """Each master is the peer that its pod is called, at the name in its /etc/hosts and the ports that it has."""
    made = one(objects, "StatefulSet", "holdfast-master")
    ports = {each["name"]: each["containerPort"] for each in containers(made)[-1]["ports"]}
    for pod in pod_names(made):
        read = taken(objects, made, pod)
        own = config.require_master(read)
        name = whole_name(made, pod)
        assert (own.name, read.master.address) == (pod, name)
        assert (own.http, own.raft) == (f"{name}:{ports['http']}", f"{name}:{ports['raft']}")
        assert (read.master.http_port, read.master.grpc_port) == (ports["http"], ports["grpc"])
        assert len(read.master.peers) == made["spec"]["replicas"]
        assert read.master.bind == "0.0.0.0"


def test_workers_take_their_settings(objects: list[Manifest]) -> None:
    """Each worker's host and machine are its node, its address is its pod's, and it knows all masters."""
    made = one(objects, "StatefulSet", "holdfast-worker")
    ports = {each["name"]: each["containerPort"] for each in containers(made)[-1]["ports"]}
    peers = tuple(each.http for each in taken(objects, made, "w").master.peers)
    for pod in pod_names(made):
        read = taken(objects, made, pod, "node-7.example")
        config.require_worker(read)
        assert read.worker.host == read.worker.machine_id == "node-7.example"
        assert read.worker.address == whole_name(made, pod)
        assert (read.worker.data_port, read.worker.http_port) == (ports["data"], ports["http"])
        assert (read.worker.bind, read.worker.masters) == ("0.0.0.0", peers)


def test_what_is_kept_is_below_a_volume_of_the_pod(objects: list[Manifest]) -> None:
    """Directories are folders in the claim, never its root: that has the group of the pod, and ext4's lost+found."""
    for made in servers(objects):
        read = taken(objects, made, pod_names(made)[0])
        mounts = {each["name"]: each["mountPath"] for each in containers(made)[-1]["volumeMounts"]}
        (claim,) = made["spec"]["volumeClaimTemplates"]
        for path in (read.master.directory, *(each.path for each in read.worker.directories)):
            assert Path(path).parent == Path(mounts[claim["metadata"]["name"]])


def test_names_fit_together(objects: list[Manifest]) -> None:
    """Selectors find the pods, mounts are of volumes, volumes of what there is, claims of a class that is there."""
    for made in servers(objects):
        template, spec = made["spec"]["template"], made["spec"]["template"]["spec"]
        labels = template["metadata"]["labels"]
        service = one(objects, "Service", made["spec"]["serviceName"])
        budget = one(objects, "PodDisruptionBudget", made["spec"]["serviceName"])
        (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        matched = (made["spec"], budget["spec"], {"selector": apart["labelSelector"]})
        assert {**service["spec"]["selector"]} == labels
        assert all(each["selector"]["matchLabels"] == labels for each in matched)
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"]
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        claims = {each["metadata"]["name"] for each in made["spec"]["volumeClaimTemplates"]}
        volumes = {each["name"] for each in spec["volumes"]} | claims
        for each in containers(made):
            assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        ports = {each["name"]: each["containerPort"] for each in containers(made)[-1]["ports"]}
        assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
        for each in made["spec"]["volumeClaimTemplates"]:
            one(objects, "StorageClass", each["spec"]["storageClassName"])


def test_commands_are_ones_of_ours(objects: list[Manifest]) -> None:
    """The server is started by the command line, with the file of the ConfigMap; a shell that precedes gives way."""
    for made, role in zip(servers(objects), ("master", "worker"), strict=True):
        server = containers(made)[-1]
        words = server["command"][-1].split("exec ")[-1].split() if role == "worker" else server["command"]
        assert words == ["holdfast", role, "--config", "/etc/holdfast/holdfast.toml"]
        assert role in COMMANDS
        assert {"name": "settings", "mountPath": "/etc/holdfast", "readOnly": True} in server["volumeMounts"]


def test_probes_ask_what_answers(objects: list[Manifest]) -> None:
    """Each asks a path that wants no token, at a port with HTTP, under TLS where that is on; a master that has not
    caught up and a worker that takes nothing more are not ready, and are not ended for it."""
    for made in servers(objects):
        read, server = taken(objects, made, pod_names(made)[0]), containers(made)[-1]
        asked = [server[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        master = made["metadata"]["name"] == "holdfast-master"
        for each, path in zip(asked, (HEALTH_PATH, READY_PATH if master else HEALTH_PATH, HEALTH_PATH), strict=True):
            if "httpGet" in each:
                scheme = "HTTPS" if read.security.enabled else "HTTP"
                assert (each["httpGet"]["path"], each["httpGet"]["port"]) == (path, "http")
                assert each["httpGet"].get("scheme", "HTTP") == scheme
        if made["metadata"]["name"] == "holdfast-worker":
            text = asked[2]["exec"]["command"][-1]
            assert f'"127.0.0.1", {read.worker.http_port}' in text
            assert ("HTTPSConnection" in text) == read.security.enabled


def test_an_end_has_time(objects: list[Manifest]) -> None:
    """The grace of a worker is longer than its drain and its end; budgets let one of each kind be away."""
    made = one(objects, "StatefulSet", "holdfast-worker")
    drain = taken(objects, made, "w").worker.drain_timeout.seconds
    assert made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= drain + END_SECONDS
    budgets = [each["spec"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert [each["maxUnavailable"] for each in budgets] == [1, 1]


def test_a_start_has_time(objects: list[Manifest]) -> None:
    """A worker that looks through many files after a kill is given as long as Ansible gives it, before it is killed."""
    made = one(objects, "StatefulSet", "holdfast-worker")
    probe = containers(made)[-1]["startupProbe"]
    tasks = (ROOT / "deploy" / "ansible" / "roles" / "holdfast_worker" / "tasks" / "main.yml").read_text("utf-8")
    (seconds,) = re.findall(r"holdfast_unit_start_seconds: (\d+)", tasks)
    assert probe["periodSeconds"] * probe["failureThreshold"] >= int(seconds)


def test_memory_is_enough(objects: list[Manifest]) -> None:
    """A worker is promised its buffers and what the doctor counts beside them."""
    made = one(objects, "StatefulSet", "holdfast-worker")
    number, unit = re.fullmatch(r"(\d+)(\w+)", containers(made)[-1]["resources"]["requests"]["memory"]).groups()  # type: ignore[union-attr]
    assert int(number) * SIZE_UNITS[f"{unit}B"] >= taken(objects, made, "w").worker.memory + _WORKER_FIXED


def test_nothing_runs_as_root(objects: list[Manifest]) -> None:
    """The user is the image's, files of the image are not written, no right is kept, no service account is there."""
    (user,) = re.findall(r"^USER (\d+):\1$", (KUBERNETES / "Containerfile").read_text("utf-8"), re.MULTILINE)
    for made in servers(objects):
        spec = made["spec"]["template"]["spec"]
        said = spec["securityContext"]
        assert said["runAsNonRoot"]
        assert {said["runAsUser"], said["runAsGroup"], said["fsGroup"]} == {int(user)}
        assert spec["automountServiceAccountToken"] is False
        for each in containers(made):
            own = each["securityContext"]
            assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
            assert own["capabilities"] == {"drop": ["ALL"]}


def test_variables_of_services_stay_out(objects: list[Manifest]) -> None:
    """Kubernetes gives pods variables for each service; that of one called holdfast-master would be refused."""
    for made in servers(objects):
        assert made["spec"]["template"]["spec"]["enableServiceLinks"] is False
    with pytest.raises(ConfigError, match="service_host"):
        config.parse("", {"HOLDFAST_MASTER_SERVICE_HOST": "10.0.0.1"})


def test_the_secret_has_what_is_read(objects: list[Manifest]) -> None:
    """The page says how it is made, with the files that the settings name, and no more of them."""
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text("utf-8")
    plain, secured = (line for line in page.splitlines() if "create secret generic holdfast " in line)
    for made in servers(objects):
        read = taken(objects, made, pod_names(made)[0])
        environ = one(objects, "ConfigMap", "holdfast-environment")["data"]
        named = paths(read) | {environ[key] for key in ("HOLDFAST_CA", "HOLDFAST_TOKEN_FILE") if key in environ}
        line = secured if read.security.enabled else plain
        assert {Path(each).name for each in named} == set(SECRET_FILE.findall(line))
        assert {str(Path(each).parent) for each in named} == {"/run/holdfast"}


def test_one_certificate_is_believed_for_all_pods(tmp_path: Path) -> None:
    """That of the page names the pods of both services, of as many as there may be, and nobody else."""
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text("utf-8")
    hosts = re.findall(r"--host '(\S+)'", page)
    make_ca(tmp_path)
    certificate, key = issue(tmp_path, "server", hosts)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(certificate, key)
    objects = rendered(KUBERNETES / "secured")
    names = [whole_name(made, f"{made['metadata']['name']}-{number}") for made in servers(objects) for number in (0, 9)]
    stranger = "holdfast-master-0.holdfast-masters.other.svc.cluster.local"
    met = meet(listening, (tmp_path / "ca.pem").read_text(), [*names, stranger])
    assert (met.refused, met.names_missing) == ("", (stranger,))


def test_images_are_those_of_the_recipe(objects: list[Manifest]) -> None:
    """Pods use the image that the recipe says how to build, of this release, with extras that there are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (KUBERNETES / "Containerfile").read_text("utf-8")
    for made in servers(objects):
        assert {each["image"] for each in containers(made)} == {f"holdfast:{project['version']}"}
    assert f"-t holdfast:{project['version']} " in text
    (extras,) = re.findall(r"'holdfast\[(.*)\]'", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_servers_take_the_settings_of_the_page() -> None:
    """The overlay in the documentation names keys that there are, and generators that the base has."""
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text("utf-8")
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (overlay,) = (each for each in blocks if each["kind"] == "Kustomization")
    objects = rendered(KUBERNETES / "base")
    for each in overlay["configMapGenerator"]:
        one(objects, "ConfigMap", each["name"])
        config.parse("", dict(literal.split("=", 1) for literal in each.get("literals", ())))
    for each in overlay["replicas"]:
        one(objects, "StatefulSet", each["name"])


def test_spark_takes_its_settings() -> None:
    """What a job is told is what the plug-in reads: the masters of the manifests, the jar of the image."""
    text = (KUBERNETES / "spark-defaults.conf").read_text("utf-8")
    said = dict(line.lstrip("#").split(" ", 1) for line in text.splitlines() if re.match(r"#?spark\.", line))
    objects = rendered(KUBERNETES / "base")
    peers = taken(objects, servers(objects)[0], "m").master.peers
    assert said["spark.holdfast.master.endpoints"] == ",".join(each.http for each in peers)
    assert said["spark.shuffle.manager"] == settings.MANAGER
    assert said["spark.shuffle.sort.io.plugin.class"] == doctor.DATA_IO
    assert said.items() >= settings._BESIDE.items()
    for key, value in said.items():
        if key.startswith(doctor.PREFIX):
            assert doctor.KEYS[key.removeprefix(doctor.PREFIX)].fullmatch(value), key
    recipe = (KUBERNETES / "Containerfile").read_text("utf-8")
    for key in doctor.CLASS_PATHS:
        assert f"COPY holdfast-spark.jar {said[key]}\n" in recipe
    assert f"-t {said['spark.kubernetes.container.image']} " in recipe


def test_a_mistake_is_found() -> None:
    """The checks can fail: a setting that no server knows is refused."""
    objects = rendered(KUBERNETES / "base")
    environ: dict[str, Any] = one(objects, "ConfigMap", "holdfast-environment")["data"]
    environ["HOLDFAST_WORKER_DATA_PROT"] = "7080"
    with pytest.raises(ConfigError, match="data_port"):
        taken(objects, servers(objects)[1], "w")
