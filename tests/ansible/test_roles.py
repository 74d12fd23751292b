"""What Ansible would write and do, looked at without it: configurations that servers take, units that systemd takes,
and playbooks that name what there is."""

import configparser
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.config import config
from holdfast.common.config.config import Config
from tests.ansible.render import ANSIBLE, ROLES, Inventory, inventory, load, role_filters
from tests.support.tree import ROOT

PLAYBOOKS = sorted((ANSIBLE / "playbooks").glob("*.yml"))
TASKS = sorted(ROLES.glob("*/tasks/*.yml"))
#: Given by people on the command line, as the head of each playbook says.
ASKED = {"holdfast_restart", "holdfast_at_once", "holdfast_replace", "holdfast_backups", "holdfast_backup"}


@pytest.fixture(scope="module")
def example() -> Inventory:
    return inventory()


def servers(example: Inventory, host: str, role: str, **extra: Any) -> tuple[list[Config], str]:
    """The configurations of the servers of a host, each under its own file's name, and their unit."""
    (task,) = (each for each in load(ROLES / f"holdfast_{role}" / "tasks" / "main.yml") if "vars" in each)
    known = {"holdfast_worker_cores": {"stdout": "2"}, "holdfast_worker_divided": {}, **task["vars"], **extra}
    variables = example.host(host, "holdfast", f"holdfast_{role}", **known)
    made = []
    for server in variables["holdfast_unit_servers"]:
        said = example.host(host, "holdfast", holdfast_toml_role=role, holdfast_toml_sections=server["sections"])
        text = said.filled(ROLES / "holdfast" / "templates" / "config.toml.j2")
        made.append(config.parse(text, source=f"{host}: {server['config']}.toml"))
    return made, variables.filled(ROLES / "holdfast" / "templates" / "server.service.j2")


def written(example: Inventory, host: str, role: str, **extra: Any) -> tuple[Config, str]:
    """The configuration and the unit of a host with one server."""
    (made,), unit = servers(example, host, role, **extra)
    return made, unit


def every_task(found: Any) -> Iterator[dict[str, Any]]:
    """All tasks of a file, those in blocks and plays too."""
    for each in found or []:
        for key in ("tasks", "block", "pre_tasks"):
            yield from every_task(each.get(key))
        if "hosts" not in each:
            yield each


def test_masters_take_their_configuration(example: Inventory) -> None:
    """Each is who the inventory says, all have the same three peers, the secret is a file, nothing listens
    everywhere."""
    seen = []
    for number, host in enumerate(example.groups["masters"], 1):
        made, _ = written(example, host, "master")
        own = config.require_master(made)
        assert own.name == f"m{number}"
        assert (made.cluster.id, made.cluster.secret_file) == ("prod", "/etc/holdfast/secret")
        assert made.master.bind == host
        assert made.log.format == "json"
        assert made.quota.application_bytes == 2 << 40
        seen.append(made.master.peers)
    assert seen[0] == seen[1] == seen[2]
    assert [str(each.http) for each in seen[0]] == [f"m{number}.example.org:7070" for number in (1, 2, 3)]


def test_workers_take_their_configuration(example: Inventory) -> None:
    """Each has the rack of its group, the directories of its own or its group, and knows all masters."""
    assert len(example.groups["workers"]) == 6
    for host in example.groups["workers"]:
        made, unit = written(example, host, "worker")
        config.require_worker(made)
        number = int(host[1])
        assert (made.worker.name, made.worker.rack, made.worker.host) == (f"w{number}", f"r{(number + 1) // 2}", "")
        assert len(made.worker.directories) == (3 if number == 6 else 2)
        assert [str(each) for each in made.worker.masters] == [f"m{each}.example.org:7070" for each in (1, 2, 3)]
        assert made.worker.memory == 1 << 30
        for directory in made.worker.directories:
            assert f"ReadWritePaths=-{directory.path}\n" in unit
        (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
        assert int(stop) > made.worker.drain_timeout.seconds


def test_a_host_has_several_workers(example: Inventory) -> None:
    """Each has a name, ports, directories and a share of the memory of its own; the host is the machine's, unless the
    inventory says otherwise; all of them run by one unit, which may write to what they have."""
    memory = {"holdfast_worker_memory_max": "6G", "holdfast_worker_settings": {"worker": {"memory": "3GiB"}}}
    made, unit = servers(example, "w6.example.org", "worker", holdfast_workers_per_host=3, **memory)
    assert [each.worker.name for each in made] == ["w6", "w6-2", "w6-3"]
    assert [(each.worker.data_port, each.worker.http_port) for each in made] == [
        (7080, 7081),
        (7082, 7083),
        (7084, 7085),
    ]
    assert [[str(one.path) for one in each.worker.directories] for each in made] == [
        [f"/data{number}/holdfast"] for number in (1, 2, 3)
    ]
    assert {each.worker.memory for each in made} == {1 << 30}
    assert {str(each.worker.host) for each in made} == {""}
    assert f"MemoryMax={2 << 30}\n" in unit
    assert "/worker-%i.toml\n" in unit
    assert all(f"ReadWritePaths=-/data{number}/holdfast\n" in unit for number in (1, 2, 3))
    for each in made:
        config.require_worker(each)
    named, _ = servers(example, "w1.example.org", "worker", holdfast_workers_per_host=2, holdfast_worker_host="r1-h7")
    assert [str(each.worker.host) for each in named] == ["r1-h7", "r1-h7"]


def test_settings_win_over_what_roles_say(example: Inventory) -> None:
    """What the inventory says of a section is in the file, the rest of the section stays; text is escaped."""
    settings = {"worker": {"drain_timeout": "5m"}, "dfs": {"url": "/mnt/shuffle"}, "cluster": {"id": 'a"b\\c'}}
    made, unit = written(example, "w1.example.org", "worker", holdfast_worker_settings=settings)
    assert made.worker.drain_timeout.seconds == 300
    assert made.worker.name == "w1"
    assert made.cluster.id == 'a"b\\c'
    assert "ReadWritePaths=-/mnt/shuffle\n" in unit


@pytest.mark.parametrize(("host", "role"), [("m1.example.org", "master"), ("w6.example.org", "worker")])
def test_security_is_one_variable(example: Inventory, host: str, role: str) -> None:
    """With it servers have certificate, key and CA where the role brings them, and the secret; without it none is
    named."""
    made, _ = written(example, host, role, holdfast_security_enabled=True)
    where = (made.security.certificate, made.security.key_file, made.security.ca, made.cluster.secret_file)
    assert where == (
        "/etc/holdfast/server.pem",
        "/etc/holdfast/server.key",
        "/opt/holdfast/ca.pem",
        "/etc/holdfast/secret",
    )
    assert made.security.enabled
    assert not written(example, host, role)[0].security.enabled


def test_one_master_is_a_cluster(tmp_path: Path) -> None:
    """A trial on one host, with addresses for names: one peer, and a worker that knows it."""
    (tmp_path / "hosts.yml").write_text(
        "all:\n  children:\n    masters:\n      hosts: {one: {ansible_host: 192.0.2.1}}\n"
        "    workers:\n      hosts: {one: {ansible_host: 192.0.2.1}}\n"
    )
    trial = inventory(tmp_path)
    made, _ = written(trial, "one", "master")
    assert config.require_master(made).http == "192.0.2.1:7070"
    worker, _ = written(trial, "one", "worker")
    config.require_worker(worker)
    assert (worker.worker.name, worker.worker.address) == ("one", "192.0.2.1")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
@pytest.mark.parametrize(("host", "role"), [("m1.example.org", "master"), ("w6.example.org", "worker")])
def test_systemd_takes_the_units(example: Inventory, host: str, role: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing unknown or wrong in what is ours."""
    program = tmp_path / "releases" / "0.1.0" / "bin" / "holdfast"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    _, text = written(example, host, role, holdfast_home=str(tmp_path))
    unit = tmp_path / f"holdfast-{role}{'@1' if role == 'worker' else ''}.service"
    unit.write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert unit.name not in done.stderr, done.stderr


@pytest.mark.parametrize("path", [*PLAYBOOKS, *TASKS], ids=lambda path: str(path.relative_to(ANSIBLE)))
def test_playbooks_name_what_there_is(path: Path) -> None:
    """Every play and task says what it does; roles, task files and templates that are named exist."""
    role = path.parent.parent.name
    for task in every_task(load(path)):
        assert task.get("name"), task
        if "import_playbook" in task:
            assert (path.parent / task["import_playbook"]).exists()
        for key, words in task.items():
            module = key.rpartition(".")[2]
            if module == "include_role":
                assert (ROLES / words["name"] / "tasks" / f"{words.get('tasks_from', 'main')}.yml").exists(), words
            elif module == "include_tasks":
                assert (path.parent / words).exists(), words
            elif module == "template":
                assert (ROLES / role / "templates" / words["src"]).exists(), words
            else:
                assert key in KEYWORDS or key.startswith("ansible.builtin."), key


#: What a task has beside its module.
KEYWORDS = frozenset(
    (
        *("name", "when", "loop", "loop_control", "register", "vars", "changed_when", "failed_when", "check_mode"),
        *("block", "become", "become_user", "notify", "retries", "delay", "until", "environment", "delegate_to"),
        *("run_once", "no_log", "import_playbook"),
    )
)


def test_variables_are_known() -> None:
    """Every variable that roles and playbooks read is a default, set on the way, or asked for by a playbook's head."""
    known: set[str] = set(ASKED)
    used: dict[str, Path] = {}
    for path in (*PLAYBOOKS, *TASKS, *ROLES.glob("*/defaults/*.yml"), *ROLES.glob("*/templates/*")):
        text = path.read_text("utf-8")
        known |= set(re.findall(r"^\s*(?:- )?(holdfast_\w+):(?:\s|$)", text, re.MULTILINE))
        known |= set(re.findall(r"(?:register|loop_var|- name|groups): (holdfast_\w+)\s*$", text, re.MULTILINE))
        code = re.sub(r"#.*", "", text)
        for name in re.findall(r"\bholdfast_\w+", code):
            used.setdefault(name, path)
    roles = {path.name for path in ROLES.iterdir()}
    filters = role_filters("holdfast_worker").keys()
    unknown = {name: str(path) for name, path in used.items() if name not in known | roles | filters}
    assert not unknown


def test_secrets_are_nobody_elses() -> None:
    """What brings a secret shows none of it, and leaves it 0600."""
    tasks = list(every_task(load(ROLES / "holdfast" / "tasks" / "secrets.yml")))
    copies = [task for task in tasks if "ansible.builtin.copy" in task]
    assert len(copies) == 5
    for task in copies:
        assert task["no_log"] is True
        assert task["ansible.builtin.copy"]["mode"] == "0600"


def test_nothing_of_ours_is_below_the_inventory(example: Inventory, tmp_path: Path) -> None:
    """Ansible reads every file below a directory of inventories as one, so that a secret would become the name of a
    host: secrets, backups and wheels are elsewhere, and ansible.cfg has those ignored that somebody keeps there."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "hosts.yml").write_text("masters: {hosts: {m1: }}\n")
    backup = load(ROLES / "holdfast_master" / "tasks" / "backup.yml")
    (fetched,) = (task["ansible.builtin.fetch"]["dest"] for task in backup if "ansible.builtin.fetch" in task)
    for read, host in ((example, "m1.example.org"), (inventory(bare), "m1")):
        said = read.host(host, "holdfast", playbook_dir=str(ANSIBLE / "playbooks"), fetched=fetched)
        for name in ("holdfast_secrets", "holdfast_wheelhouse", "fetched"):
            assert not Path(said[name]).is_relative_to(read.directory), name
    assert Path(example.host("m1.example.org", "holdfast")["holdfast_secrets"]) == ANSIBLE / "inventory/example.secrets"
    cfg = configparser.ConfigParser(interpolation=None)
    cfg.read(ANSIBLE / "ansible.cfg")
    ignored = [each.strip() for each in cfg["inventory"]["ignore_patterns"].split(",")]
    for name in ("secrets", "prod.secrets", "backups", "prod.backups", "wheelhouse"):
        assert any(re.search(each, name) for each in ignored), name
    assert not any(re.search(each, name) for each in ignored for name in ("hosts.yml", "prod", "group_vars"))


def test_commands_name_the_file_of_hosts() -> None:
    """Wherever people are told to give an inventory, it is its file and not the directory."""
    for path in (*PLAYBOOKS, *(ROOT / "docs").rglob("*.md")):
        for given in re.findall(r"(?:ansible|ansible-playbook) .*?-i (\S+)", path.read_text("utf-8")):
            assert given == "inventory/prod/hosts.yml", path


@pytest.mark.skipif(not shutil.which("ansible-inventory"), reason="there is no ansible-inventory: tox -e ansible")
@pytest.mark.parametrize("given", ["prod/hosts.yml", "prod", "."])
def test_the_documented_layout_has_the_hosts_of_the_example(given: str, tmp_path: Path) -> None:
    """With secrets beside the inventory, and even with some in it, Ansible knows its hosts and no others."""
    inventories = tmp_path / "inventory"
    shutil.copytree(ANSIBLE / "inventory" / "example", inventories / "prod")
    for place in ("prod.secrets", "prod/secrets", "prod/wheelhouse/0.1.0", "prod.backups"):
        (inventories / place).mkdir(parents=True)
        (inventories / place / "cluster.secret").write_text("neverahost\n")
    command = ["ansible-inventory", "-i", str(inventories / given), "--list"]
    environ = {**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    hosts = {host for group in json.loads(done.stdout).values() for host in group.get("hosts", ())}
    assert hosts == set(inventory().groups["holdfast"])
    assert "neverahost" not in done.stdout + done.stderr


def test_people_can_read_what_is_for_them(example: Inventory) -> None:
    """The CA and the place of Spark's token are outside the servers' directory, which nobody else can look into."""
    said = example.host("s1.example.org", "holdfast", "holdfast_spark")
    (task,) = load(ROLES / "holdfast" / "tasks" / "ca.yml")
    assert task["ansible.builtin.copy"]["mode"] == "0644"
    for path in (said["holdfast_ca_file"], said["holdfast_spark_token_file"]):
        assert Path(path).parent == Path("/opt/holdfast")
    for page in ("operate/operations", "operate/security", "use/spark"):
        assert "/opt/holdfast/ca.pem" in (ROOT / "docs" / f"{page}.md").read_text("utf-8")


def missing(secrets: Path, host: str) -> tuple[list[str], str]:
    """What the first step misses for a host on the control host, and the command that it names."""
    task = load(ROLES / "holdfast" / "tasks" / "files.yml")[0]
    said = inventory().host(host, "holdfast", **task["vars"], holdfast_secrets=str(secrets))
    return [Path(each).name for each in said["holdfast_files_missing"]], said["holdfast_files_made_by"]


def test_a_certificate_names_the_address_of_its_host(example: Inventory) -> None:
    """By which others reach the server; openssl prints what is in it, and a name that only begins so is another one."""
    *_, check = load(ROLES / "holdfast" / "tasks" / "files.yml")
    for names, fine in (
        ("DNS:m1.example.org, IP Address:10.0.0.1", True),
        ("IP Address:10.0.0.1, DNS:m1.example.org\n", True),
        ("DNS:m1.example.org.net, IP Address:10.0.0.1", False),
    ):
        said = {"holdfast_files_names": {"stdout": f"X509v3 Subject Alternative Name: \n    {names}"}}
        passed = "{{ " + check["ansible.builtin.assert"]["that"] + " }}"
        assert example.host("m1.example.org", "holdfast", **said, passed=passed)["passed"] is fine


def test_files_of_security_are_missed_at_once(tmp_path: Path) -> None:
    """What is not there is named before anything is done, with the command that makes it: the CA, a certificate for
    this host, the token; hosts with Spark alone need the CA only."""
    w3, every = "w3.example.org", ("ca.pem", "w3.pem", "w3.key", "admin.token")
    names, command = missing(tmp_path, w3)
    assert (names, command) == (list(every), f"holdfast ca init {tmp_path}")
    assert missing(tmp_path, "s1.example.org")[0] == ["ca.pem"]
    (tmp_path / "ca.pem").touch()
    names, command = missing(tmp_path, w3)
    assert (names, command) == (list(every[1:]), f"holdfast ca issue {tmp_path} w3 --host {w3}")
    for name in every[1:3]:
        (tmp_path / name).touch()
    names, command = missing(tmp_path, w3)
    assert names == ["admin.token"]
    assert command.split()[:4] == ["holdfast", "token", "--kind", "admin"]
    (tmp_path / "admin.token").touch()
    assert missing(tmp_path, w3)[0] == []
    for name in ("install", "upgrade", "add_worker"):
        first = load(ANSIBLE / "playbooks" / f"{name}.yml")[0]["tasks"][0]["ansible.builtin.include_role"]
        assert first == {"name": "holdfast", "tasks_from": "files"}


def test_a_removed_worker_keeps_no_secret() -> None:
    """All that secrets.yml brings to a worker, and its configuration, goes with it; not from under a master."""
    tasks = load(ROLES / "holdfast_worker" / "tasks" / "remove.yml")
    gone = next(task for task in tasks if "secret" in task.get("loop", ()))
    assert "holdfast_masters_group" in gone["when"]
    brought: set[str] = set()
    for task in load(ROLES / "holdfast" / "tasks" / "secrets.yml"):
        copied = task.get("ansible.builtin.copy", {}).get("dest", "")
        if "holdfast_config_directory" in copied:
            brought |= {each["dest"] for each in task.get("loop", ())} or {copied.rpartition("/")[2]}
    assert brought == set(gone["loop"])
    assert any(task.get("ansible.builtin.include_tasks") == "stop.yml" for task in tasks)
    stops = load(ROLES / "holdfast_worker" / "tasks" / "stop.yml")
    assert any("worker-{{ item }}.toml" in str(task.get("ansible.builtin.file")) for task in stops)


@pytest.mark.parametrize(("state", "drained"), [("lost", ["11", "12"]), ("gone", ["11"])])
def test_nothing_is_emptied_while_a_stopped_worker_may_be_needed(
    example: Inventory, state: str, drained: list[str]
) -> None:
    """A change and a removal drain every worker of the host but those that are gone, which nobody needs. Without an
    answer of the masters nothing goes on."""
    asks, drains, checks = load(ROLES / "holdfast_worker" / "tasks" / "drain.yml")
    workers = [{"worker": 11, "name": "w6", "state": "draining"}, {"worker": 12, "name": "w6-2", "state": state}]
    said = example.host(
        "w6.example.org",
        "holdfast",
        "holdfast_worker",
        **drains["vars"],
        holdfast_worker_plan={"workers": [{"name": name} for name in ("w6", "w6-2", "w6-3")]},
        holdfast_worker_divided={},
        holdfast_worker_listed={"rc": 0, "stdout": json.dumps({"workers": workers})},
        holdfast_drain_for="removal",
        holdfast_drain_seconds=9,
    )
    words = said.worked_out(drains["ansible.builtin.command"]["argv"])
    assert words[3:] == ["drain", *drained, "--for", "removal", "--json"]
    for stdout in ('{"error": "no master answers", "exit": 1}', "Traceback"):
        failed = {**said_of(asks), "holdfast_worker_listed": {"rc": 1, "stdout": stdout}}
        assert example.host("w6.example.org", **failed)["failed"] is True
    for purpose, fine in (("removal", [0]), ("restart", [0, 1, 124])):
        for status in (0, 1, 2, 124):
            ended = {"holdfast_worker_drained": {"rc": status}, "holdfast_drain_for": purpose}
            passed = "{{ " + checks["ansible.builtin.assert"]["that"] + " }}"
            assert example.host("w6.example.org", **ended, passed=passed)["passed"] is (status in fine)


def said_of(task: dict[str, Any]) -> dict[str, Any]:
    """The condition under which a task fails, as a variable."""
    return {"failed": "{{ " + task["failed_when"] + " }}"}


def test_new_secrets_restart_every_server_of_a_host() -> None:
    """Where a master and a worker share a host the second role finds the files unchanged: whoever brings them notes it
    for both."""
    tasks = load(ROLES / "holdfast" / "tasks" / "secrets.yml")
    (noted,) = (task for task in tasks if task.get("ansible.builtin.include_tasks") == "restarts.yml")
    brought = {task["register"] for task in tasks if str(task.get("register", "")).endswith("_brought")}
    assert len(brought) == 3
    assert all(f"{name} is changed" in noted["when"] for name in (*brought, "holdfast_ca_brought"))
    asked, _ = load(ROLES / "holdfast" / "tasks" / "restarts.yml")
    assert asked["loop"] == ["master", "worker"]


def test_packages_are_asked_for_where_they_are_missing() -> None:
    """A host on which Python makes environments needs no archive of packages, not even in check mode."""
    tasks = load(ROLES / "holdfast" / "tasks" / "install.yml")
    looks = next(number for number, task in enumerate(tasks) if task.get("register") == "holdfast_python_venv")
    (asks,) = (number for number, task in enumerate(tasks) if "ansible.builtin.package" in task)
    assert looks < asks
    assert tasks[looks]["check_mode"] is False
    assert "holdfast_python_venv.rc != 0" in tasks[asks]["when"]


def test_the_docs_name_playbooks_that_there_are() -> None:
    """Each playbook is in docs/operate/operations.md, and none that is not there."""
    text = (ROOT / "docs" / "operate" / "operations.md").read_text("utf-8")
    assert set(re.findall(r"playbooks/(\w+)\.yml", text)) == {path.stem for path in PLAYBOOKS}
