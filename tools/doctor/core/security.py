"""Judges what a secured server or client has: certificate, key, CA, token. Times are seconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.common.config.config import Config, advertised
from holdfast.tools.doctor.core.facts import CertificateFact, JobFact, TokenFact
from holdfast.tools.doctor.core.findings import Symptom, advice, problem
from holdfast.tools.doctor.core.host import host_of

_DAY = 86_400
#: A certificate is a note a month before it expires, and a problem a week before.
_SOON_DAYS, _LATE_DAYS = 30, 7
#: Kinds of tokens with which an application may be made.
_STARTS_JOBS = ("user", "admin")


def advertised_names(config: Config, this_host: str) -> list[str]:
    """Hosts under which others reach the servers of this file."""
    names = []
    own = next((peer for peer in config.master.peers if peer.name == config.master.name), None)
    if own is not None:
        names += [host_of(own.raft), host_of(own.http)]
        names.append(advertised(config.master.bind, config.master.address, this_host))
    if config.worker.directories:
        names.append(advertised(config.worker.bind, config.worker.address, this_host))
    return names


def check_security(config: Config, found: CertificateFact | None, now_s: float) -> Iterator[Symptom]:
    """What keeps a server with [security] enabled from starting, or others from believing it."""
    if not config.security.enabled:
        return
    if not config.cluster.secret_file:
        remedy = "give all masters and workers the same file; see docs/operate/security.md"
        yield problem("secret", "cluster.secret_file", "is not set, and tokens are made of it", remedy)
    if found is None:
        return
    for path in found.open_files:
        what = "other users of this machine may read it: the server refuses to start"
        yield problem("key-open", path, what, f"chmod 0600 {path}")
    where = f"security.certificate {config.security.certificate}"
    if found.error:
        remedy = "put the files there, readable by the servers' user; `holdfast ca issue` makes some for trials"
        yield problem("certificate", where, found.error, remedy)
        return
    if found.no_pair:
        what = f"and security.key_file {config.security.key_file} are no pair: {found.no_pair}"
        yield problem("certificate", where, what, "name the key that the certificate was made with")
        return
    if found.refused:
        remedy = "get a new certificate from the CA that security.ca names, valid now, and restart the server"
        yield problem("certificate", where, f"is refused by clients with this security.ca: {found.refused}", remedy)
        return
    if found.names_missing:
        names = ", ".join(found.names_missing)
        what = f"does not name {names}, where others reach this server: they will not believe that it is it"
        yield problem("certificate-name", where, what, f"get one that names {names} as well, or correct the address")
    yield from _ends(where, found.ends_s, now_s)


def _ends(where: str, ends_s: float, now_s: float) -> Iterator[Symptom]:
    days = (ends_s - now_s) / _DAY
    if ends_s and days < _SOON_DAYS:
        level = problem if days < _LATE_DAYS else advice
        remedy = "put a new one in its place and restart the server; a rolling restart costs jobs nothing"
        yield level("certificate-ends", where, f"expires in {days:.0f} days", remedy)


def check_token(found: TokenFact | None, now_s: float) -> Iterator[Symptom]:
    """What HOLDFAST_CA and HOLDFAST_TOKEN_FILE name, where they are set."""
    if found is None:
        return
    where = "HOLDFAST_CA and HOLDFAST_TOKEN_FILE"
    if found.error:
        yield problem("token", where, found.error, "set both, or neither for a cluster without security")
        return
    if found.open_to_others:
        what = "other users of this machine may read it, and act in its name"
        yield problem("key-open", found.path, what, f"chmod 0600 {found.path}")
    if found.ends_s <= now_s:
        what = "the token has expired, and is refused by every server"
        yield problem("token", found.path, what, "have a new one made with `holdfast token`")
    elif found.ends_s - now_s < _LATE_DAYS * _DAY:
        what = f"the token expires in {(found.ends_s - now_s) / 3600:.0f} hours"
        yield advice("token", found.path, what, "have a new one made with `holdfast token` before that")


def check_job(found: JobFact | None, source: str, now_s: float) -> Iterator[Symptom]:
    """The files that Spark's settings name, without which no job starts on a secured cluster."""
    if found is None:
        return
    ca, token = f"{source} spark.holdfast.security.ca", f"{source} spark.holdfast.security.tokenFile"
    if found.ca_error:
        remedy = (
            "put the cluster's ca.pem, which is no secret, where the user of the jobs may read it, and name that file"
        )
        yield problem("spark-security", ca, f"no job starts: {found.ca_error}", remedy)
    elif found.ca_ends_s and found.ca_ends_s <= now_s:
        what = f"no job starts: the CA in {found.ca} has expired"
        yield problem("spark-security", ca, what, "put the cluster's present ca.pem there (docs/operate/security.md)")
    for each in [each for each in found.welcomes if each.certificate_refused][:1]:
        what = f"the CA in {found.ca} does not vouch for the master: {each.certificate_refused}"
        remedy = "put the ca.pem of this cluster there, and name masters as their certificates do"
        yield problem("spark-security", ca, what, remedy)
    for each in [each for each in found.welcomes if each.only_file_tls][:1]:
        what = f"no job starts: the master at {each.address} uses no TLS"
        yield problem("spark-security", ca, what, "take both settings out, or enable [security] on all servers")
    if found.token_error:
        remedy = "put a token of kind user where the user of the jobs may read it, and name that file"
        yield problem("spark-security", token, f"no job starts: {found.token_error}", remedy)
    elif found.token:
        yield from _job_token(found, token, now_s)


def _job_token(found: JobFact, where: str, now_s: float) -> Iterator[Symptom]:
    make = "have one made with `holdfast token --kind user`"
    if found.kind not in _STARTS_JOBS:
        what = f"no job starts: {found.token} holds a token of kind {found.kind}, which makes no applications"
        yield problem("spark-security", where, what, make)
    elif found.kind != "user":
        what = f"{found.token} holds a token of kind {found.kind}, which gives jobs the rights of operators"
        yield advice("spark-security", where, what, make)
    if found.open_to_others:
        what = "every user of this machine may read it, and act in its name"
        yield problem("key-open", found.token, what, f"chmod o= {found.token}")
    for each in [each for each in found.welcomes if each.secret_refused][:1]:
        what = f"the token in {found.token} is refused by the master at {each.address}: {each.secret_refused}"
        yield problem("spark-security", where, what, f"{make} with this cluster's secret and --cluster")
        return
    left_s = found.ends_s - now_s
    if left_s <= 0:
        yield problem("spark-security", where, f"no job starts: the token in {found.token} has expired", make)
    elif left_s < _LATE_DAYS * _DAY:
        what = f"the token in {found.token} ends in {left_s / 3600:.0f} hours, and no job starts after that"
        yield advice("spark-security", where, what, f"{make} before that")
