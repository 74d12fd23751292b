"""Judges what answers at the masters' addresses: masters that agree, workers that can be reached, versions, clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from holdfast.common.agreement import settings_digests
from holdfast.common.config.config import Config, require_master, require_worker
from holdfast.common.errors import ConfigError
from holdfast.common.sizes import fewer_copies
from holdfast.common.worker_states import AWAY, LOST
from holdfast.tools.doctor.core.facts import Clock, Cluster, MasterFact, SecretFact, WelcomeFact, WorkerFact
from holdfast.tools.doctor.core.findings import Symptom, advice, problem

#: What leases, tokens and certificates bear, and what already makes logs hard to compare.
CLOCK_SECONDS_MAX, CLOCK_SECONDS_GOOD = 5.0, 1.0
_THROUGH = "open firewalls and routes from this host to it, or correct its address"
_NOT_RUNNING = "start it, if it has just stopped; if it runs, set worker.address to an address of its host"
#: Lost workers that a remedy names.
_NAMED_MAX = 10
SECRET_BYTES_LEAST = 16
#: Names of what is a format in `versions`: where these differ servers cannot talk, or not read each other's disks.
_FORMATS = ("protocol", "frames", "batches", "arrays", "raft", "journal", "state", "disk")
_LIBRARIES = ("python", "lmdb", "protobuf", "pyarrow")
_START = "start it there, or correct the address; `holdfast doctor` on that host shows why it does not run"


def check_roles(config: Config) -> Iterator[Symptom]:
    """What a master or worker would refuse of its file as it starts."""
    section = config.master
    if section.peers or section.directory:
        try:
            require_master(config)
        except ConfigError as error:
            yield problem("peers", "[master]", str(error), "correct it: each master is in the list of all of them")
    if config.worker.directories or config.worker.masters:
        try:
            require_worker(config)
        except ConfigError as error:
            yield problem("peers", "[worker]", str(error), "set it; docs/operate/deployment.md has a whole file")


def check_secret(config: Config, secret: SecretFact | None, loopback: bool) -> Iterator[Symptom]:
    """The masters' secret; `loopback`: all masters meet on loopback, where none is needed."""
    remedy = "make one with `head -c 32 /dev/urandom | base64`, the same file on all masters, mode 0600"
    if secret is None:
        if config.master.peers and not loopback:
            what = "is not set, and masters meet over a network: they refuse to start"
            yield problem("secret", "cluster.secret_file", what, remedy)
        return
    where = f"cluster.secret_file {secret.path}"
    if secret.error:
        yield problem(
            "secret", where, f"cannot be read: {secret.error}", "make it, readable by the servers' user alone"
        )
    elif secret.length < SECRET_BYTES_LEAST:
        what = f"holds {secret.length} bytes, and needs {SECRET_BYTES_LEAST} or more"
        yield problem("secret", where, what, remedy)
    elif secret.open_to_others:
        what = "other users of this machine may read or change it"
        yield problem("secret", where, what, f"chmod 0600 {secret.path}")


def check_masters(cluster: Cluster, config: Config | None, secret: SecretFact | None) -> Iterator[Symptom]:
    """Who answers, whether they agree among themselves and with this file."""
    there = [each for each in cluster.masters if not each.error]
    yield from _silent(cluster, bool(there))
    if there and not any(each.leads for each in there):
        what = f"{len(there)} answer, and none is the leader"
        remedy = "start the others: more than half have to reach one another on their raft ports"
        yield problem("no-leader", ", ".join(each.address for each in there), what, remedy)
    yield from _clusters(there, config)
    yield from _few(there, cluster)
    yield from _agreement(there, config, secret)
    for master in there:
        yield from _clock(f"master {master.name} at {master.address}", master.clock)
        yield from _faults(f"master {master.name}", master.faults)


def _silent(cluster: Cluster, any_there: bool) -> Iterator[Symptom]:
    closed = [each for each in cluster.masters if each.error and each.speaks_tls]
    if closed:
        what = f"the server uses TLS, and did not accept these credentials: {closed[0].error}"
        remedy = "set HOLDFAST_CA to the cluster's CA and HOLDFAST_TOKEN_FILE to a token (docs/operate/security.md)"
        yield problem("token", ", ".join(each.address for each in closed), what, remedy)
    for each in cluster.masters:
        if each in closed:
            continue
        if each.error and each.refused and not any_there and not cluster.expected:
            what = f"nothing listens there yet: {each.error}"
            yield advice("master-silent", each.address, what, "start the masters, then ask again")
        elif each.error:
            yield problem("master-silent", each.address, f"does not answer: {each.error}", _START)
        for what, reason, refused in each.silent:
            remedy = _THROUGH if not refused else "see its log, and check that its address is that of its host"
            values = f"answers over HTTP, and {'nothing listens' if refused else 'not'} at its {what}: {reason}"
            yield problem("master-silent", f"master {each.name} at {each.address}", values, remedy)


def _clusters(there: Sequence[MasterFact], config: Config | None) -> Iterator[Symptom]:
    usual = config.cluster.id if config is not None else _most([each.cluster_id for each in there])
    for each in there:
        if each.cluster_id != usual:
            what = f'is of cluster "{each.cluster_id}", not "{usual}"'
            remedy = "give all servers of one cluster the same [cluster] id, or name the masters of this one"
            yield problem("cluster-differs", f"master {each.name} at {each.address}", what, remedy)


def _few(there: Sequence[MasterFact], cluster: Cluster) -> Iterator[Symptom]:
    asked = {each.address for each in cluster.masters if not each.only_named}
    known = {http for each in there for _, http in each.peers}
    if there and len(asked) < max(len(each.peers) for each in there):
        missing = ", ".join(sorted(known - asked))
        what = f"names {len(asked)} of {max(len(each.peers) for each in there)} masters"
        remedy = f"name all of them, {missing} too, so that none has to be there when it is asked"
        yield advice("endpoints-few", "the list of masters", what, remedy)


def _agreement(there: Sequence[MasterFact], config: Config | None, secret: SecretFact | None) -> Iterator[Symptom]:
    """Who differs from what most have, or from this file where it is a master's."""
    own: Mapping[str, str] = {}
    if config is not None and config.master.peers:
        own = settings_digests(config)
        if secret is not None and secret.digest:
            own = {**own, "secret": secret.digest}
    telling = [each for each in there if each.settings]
    for name in sorted({name for each in telling for name in each.settings}):
        values = {each.name: each.settings[name] for each in telling if name in each.settings}
        usual = own.get(name) or _most(list(values.values()))
        fine = {usual, secret.other_digest} if name == "secret" and secret is not None else {usual}
        odd = sorted(who for who, digest in values.items() if digest not in fine)
        if odd:
            yield _disagree(name, odd, "this file" if name in own else "the others")


def _disagree(name: str, odd: Sequence[str], against: str) -> Symptom:
    where = f"master {', '.join(odd)}"
    if name == "secret":
        remedy = "give all masters the same file as cluster.secret_file, and restart those that have another"
        return problem("secret-differs", where, f"has another secret than {against}, so they refuse each other", remedy)
    if name == "peers":
        remedy = "write the same list, names and addresses, into every master's file, and restart those that differ"
        return problem("peers-differ", where, f"has another list of masters than {against}", remedy)
    what = f"[{name}]" if "." not in name else name
    again = "run `holdfast reload`" if name == "placement" else "restart it"
    remedy = f"write the same {what} into every master's file, and {again}: the leader uses its own"
    return problem("settings-differ", where, f"has another {what} than {against}", remedy)


def check_welcome(welcomes: Sequence[WelcomeFact], config: Config) -> Iterator[Symptom]:
    """What keeps the server of this file out of its cluster though the masters can be reached."""
    for each in welcomes:
        where = f"master at {each.address}"
        if each.secret_refused:
            what = f"refuses tokens made with cluster.secret_file {config.cluster.secret_file}: {each.secret_refused}"
            remedy = "give this server the file that the masters have, and restart it"
            yield problem("secret-differs", where, what, remedy)
        if each.certificate_refused:
            what = f"is not believed with security.ca {config.security.ca}: {each.certificate_refused}"
            remedy = "give all servers the CA that signed their certificates, or that master a certificate by this one"
            yield problem("certificate", where, what, remedy)
        if each.only_master_tls:
            what = "uses TLS, and in this file security.enabled is false: the two cannot connect"
            remedy = (
                "enable [security] here too, with certificate, key_file and ca (docs/operate/security.md); restart it"
            )
            yield problem("security-differs", where, what, remedy)
        if each.only_file_tls:
            what = "uses no TLS, and in this file security.enabled is true: the two cannot connect"
            remedy = "set security.enabled alike on all masters and workers, and restart those that differ"
            yield problem("security-differs", where, what, remedy)


def check_workers(cluster: Cluster, config: Config | None) -> Iterator[Symptom]:
    """Lost, out of reach, of one name, of another store."""
    if cluster.workers_error:
        what = f"the masters do not list the workers: {cluster.workers_error}"
        yield problem("worker-silent", "all workers", what, "check the masters with `holdfast status`")
    for each in cluster.workers:
        if each.state == LOST:
            what = f"sends no heartbeats; it was at {each.data_address}"
            remedy = (
                "start it again, or check why it cannot reach the masters; `holdfast remove` it if it never comes back"
            )
            yield problem("worker-lost", f"worker {each.name}", what, remedy)
            continue
        if each.certificate_refused:
            what = f"has a certificate that is refused: {each.certificate_refused}"
            remedy = "give it one that is valid today and names the host by which it is reached, and restart it"
            yield problem("certificate", f"worker {each.name} at {each.data_address}", what, remedy)
        for port, reason, refused in each.silent:
            remedy = _NOT_RUNNING if refused else f"{_THROUGH}, of a worker with worker.address"
            values = (
                f"nothing listens at its {port}: {reason}" if refused else f"its {port} cannot be reached: {reason}"
            )
            yield problem("worker-silent", f"worker {each.name}", values, remedy)
        yield from _clock(f"worker {each.name}", each.clock)
        yield from _faults(f"worker {each.name}", each.faults)
    yield from _stores(cluster)
    yield from _copies(cluster)
    if config is not None and config.worker.name and config.worker.directories:
        yield from _twin(config, cluster.workers)


def _twin(config: Config, workers: Sequence[WorkerFact]) -> Iterator[Symptom]:
    section = config.worker
    for each in workers:
        own_port = section.data_port and each.data_address.rpartition(":")[2] == str(section.data_port)
        own_host = not section.address or each.data_address.rpartition(":")[0] == section.address
        if each.name == section.name and each.state not in AWAY and not (own_port and own_host):
            what = f"{section.name} is the name of a live worker at {each.data_address}"
            yield problem("worker-twice", "worker.name", what, "give each worker a name of its own")


def _copies(cluster: Cluster) -> Iterator[Symptom]:
    for each in cluster.masters:
        if not each.leads or not each.under_replicated:
            continue
        what = fewer_copies(each.under_replicated, each.awaited)
        lost = [worker.name for worker in cluster.workers if worker.state == LOST]
        named = f" ({', '.join(lost[:_NAMED_MAX])}{', …' if len(lost) > _NAMED_MAX else ''})" if lost else ""
        start = f"start the lost workers{named}: they then seal their missing copies"
        if not lost:
            start = "find out which workers cannot seal (`holdfast workers`: disks that are full or fail)"
        fewer = "run again what has to survive the loss of one more worker; later shuffles need as many hosts as copies"
        remedies = [start] * bool(each.awaited) + [fewer] * (each.awaited < each.under_replicated)
        remedy = f"{'; '.join(remedies)}; `holdfast shuffles` shows which"
        yield problem("under-replicated", "all shuffles", what, remedy)


def _stores(cluster: Cluster) -> Iterator[Symptom]:
    used = {each.dfs_url for each in cluster.workers if each.state not in AWAY}
    if len(used) > 1:
        what = f"workers have the [dfs] url {', '.join(sorted(each or 'none' for each in used))}"
        yield problem("dfs-differs", "[dfs] url", what, "give all workers and masters the same [dfs]")
    telling = () if cluster.seen_as else cluster.masters
    wrong = sorted(each.name for each in telling if not each.error and used - {each.dfs_url, ""})
    if wrong:
        what = f"workers put files into {', '.join(sorted(used - {''}))}, and master {', '.join(wrong)} cleans another"
        yield problem("dfs-differs", "[dfs] url", what, "give all workers and masters the same [dfs]")


def check_versions(cluster: Cluster, own: Mapping[str, str]) -> Iterator[Symptom]:
    """Holdfast, formats and libraries of every server against this installation's."""
    servers = [(f"master {each.name}", each.version, each.versions) for each in cluster.masters if not each.error]
    servers += [
        (f"worker {each.name}", each.version, each.versions) for each in cluster.workers if each.state not in AWAY
    ]
    known = {name: own.get(name) or _most([each[2][name] for each in servers if name in each[2]]) for name in _FORMATS}
    for who, version, versions in servers:
        wrong = [
            f"{name} {versions[name]} and not {usual}"
            for name, usual in known.items()
            if versions.get(name, usual) != usual
        ]
        if wrong:
            remedy = "bring all servers and clients to one release, in the order of docs/operate/upgrade.md"
            yield problem("protocol-differs", who, f"runs Holdfast {version} with {'; '.join(wrong)}", remedy)
        elif version and version != own["holdfast"]:
            far = _distance(version, own["holdfast"]) > 1
            remedy = "finish the upgrade (docs/operate/upgrade.md): two releases run side by side only during one"
            what = f"runs Holdfast {version}, here is {own['holdfast']}"
            yield (problem if far else advice)("version-differs", who, what, remedy)
    for name in _LIBRARIES:
        values = {who: versions[name] for who, _, versions in servers if versions.get(name)}
        usual = _most(list(values.values())) if values else ""
        odd = sorted(who for who, version in values.items() if _line(version) != _line(usual))
        if odd:
            what = f"runs with {name} {values[odd[0]]}, the others with {usual}"
            remedy = "install the same set of libraries on every host, such as from one wheelhouse"
            yield advice("library-differs", ", ".join(odd[:10]), what, remedy)


def _clock(who: str, clock: Clock | None) -> Iterator[Symptom]:
    if clock is None or abs(clock.ahead) - clock.within <= CLOCK_SECONDS_GOOD:
        return
    off = f"{abs(clock.ahead):.1f} s {'ahead of' if clock.ahead > 0 else 'behind'} this host's"
    level = problem if abs(clock.ahead) - clock.within > CLOCK_SECONDS_MAX else advice
    remedy = "have both hosts keep time by NTP (chrony or systemd-timesyncd); leases, tokens and logs go by the clock"
    yield level("clock", who, f"its clock is {off}", remedy)


def _faults(who: str, faults: Sequence[str]) -> Iterator[Symptom]:
    if faults:
        what = f"makes faults on purpose: {', '.join(faults)}"
        yield advice("faults", who, what, "set [faults] enabled = false and restart it, unless a drill is running")


def _most(values: Sequence[str]) -> str:
    """What most have; of equals the least, so that the answer does not hang on the order."""
    counted = Counter(values)
    return min(counted, key=lambda each: (-counted[each], each), default="")


def _line(version: str) -> str:
    """A release without its patch: 3.11.9 is of 3.11."""
    return ".".join(version.split(".")[:2])


def _distance(first: str, second: str) -> int:
    """How many minor releases lie between two versions; many where the major ones differ."""
    numbers = [[int(part) for part in text.split(".")[:2] if part.isdigit()] for text in (first, second)]
    if any(len(each) < 2 for each in numbers) or numbers[0][0] != numbers[1][0]:
        return 99
    return abs(numbers[0][1] - numbers[1][1])
