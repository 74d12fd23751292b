"""Gathers a support bundle: what a maintainer needs to help an operator, from this host and from the cluster.

Rules: each source has a limit of time, and all together have one; whatever a source fails with is listed, and the
others go on. What may hang on a dead disk (the doctor, listings, logs) is a process of its own, which is killed and not
waited for. Nothing here is changed, and no data is opened.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.common.config import config as configuration
from holdfast.common.config.config import Config
from holdfast.common.config.settings import MarkedKey
from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.limits import KIB, MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.http_client import HttpClient
from holdfast.common.net.support import OF_EACH_MASTER, OF_THE_LEADER, plain
from holdfast.common.security.bundle import BUNDLE_BYTES_MAX, Bundle, file_name
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.security.redaction import REMOVED, KnownSecret, Redactor, known_secrets, secrets_in_file
from holdfast.common.strict_json import read_json
from holdfast.common.system.files import read_small_text
from holdfast.common.system.machine import this_machine
from holdfast.common.system.tasks import awaited
from holdfast.common.system.versions import versions
from holdfast.common.worker_states import AWAY
from holdfast.tools.doctor.asking import credentials_of
from holdfast.tools.doctor.core.spark import PREFIX, public_settings
from holdfast.tools.doctor.spark import read_settings

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: For all sources together.
ALL_SECONDS = 150.0
_DOCTOR_SECONDS = 90.0
_COMMAND_SECONDS = 30.0
_ANSWER_SECONDS = 10.0
_HTTP_SECONDS = 5.0
#: Sources that are gathered at once.
_AT_ONCE = 16
#: The last bytes of each log, and of what a command prints.
_LOG_BYTES = 8 * MIB
_OUTPUT_BYTES = 16 * MIB
_ERROR_BYTES = 64 * KIB
_JOURNAL_LINES = 50_000
_UNITS = "holdfast-*"


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """What a bundle is made from: the options of the doctor."""

    files: tuple[Path, ...]
    endpoints: str
    spark_conf: Path | None
    logs: tuple[Path, ...]
    #: further words of the doctor's command line
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    """One file of the bundle; a name that ends in .json is a document, any other a text."""

    name: str
    seconds: float
    gather: Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class _Server:
    """A file of --config as far as it can be read."""

    file: Path
    config: Config | None
    error: str
    marked: list[MarkedKey]


def make_bundle(wanted: BundleRequest, environ: Mapping[str, str] = os.environ) -> Bundle:
    """Gather everything; the bundle lists what is missing. Raises nothing for a source that fails."""
    servers = [_read(file, environ) for file in wanted.files]
    spark, spark_error = _spark(wanted.spark_conf)
    known = known_secrets([each for server in servers for each in server.marked], environ)
    bundle = Bundle(Redactor([*known, *_secrets_of_spark(spark)]))
    _add_own(bundle, servers)
    if wanted.spark_conf is not None:
        if spark_error:
            bundle.miss("spark.json", spark_error)
        else:
            shown = public_settings(spark, REMOVED)
            bundle.add_json("spark.json", shown, [key for key, value in shown.items() if value == REMOVED])
    # The doctor refuses to begin with a file that is wrong.
    wanted = replace(wanted, files=tuple(each.file for each in servers if each.config is not None))
    configs = [each.config for each in servers if each.config is not None]
    asyncio.run(_gather(bundle, wanted, configs, credentials_of(configs[0] if configs else None)))
    return bundle


def _read(file: Path, environ: Mapping[str, str]) -> _Server:
    try:
        text = read_small_text(file, "the configuration")
    except ConfigError as error:
        return _Server(file, None, str(error), [])
    marked = configuration.marked_in_text(text, environ)
    try:
        return _Server(file, configuration.parse(text, environ, str(file)), "", marked)
    except ConfigError as error:
        return _Server(file, None, str(error), marked)


def _spark(file: Path | None) -> tuple[dict[str, str], str]:
    try:
        return (read_settings(file) if file is not None else {}), ""
    except ConfigError as error:
        return {}, str(error)


def _secrets_of_spark(settings: Mapping[str, str]) -> Iterator[KnownSecret]:
    """What must not be seen of Spark's settings, wherever it stands: values that are not public, and the token."""
    shown = public_settings(settings, REMOVED)
    for key, value in settings.items():
        # Short ones are numbers, truths and such.
        if shown[key] == REMOVED and len(value) >= 8:
            yield KnownSecret(key, value)
    if path := settings.get(f"{PREFIX}security.tokenFile"):
        yield from secrets_in_file(f"the file of {PREFIX}security.tokenFile", path)


def _add_own(bundle: Bundle, servers: Iterable[_Server]) -> None:
    """What this process knows itself: the platform, and the settings of servers as they take effect."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    about = {
        "versions": versions(),
        "platform": platform.platform(),
        "python": sys.version,
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "load": os.getloadavg(),
        "machine_id": this_machine(),
        "user_id": os.geteuid(),
        "clock_ms": time.time_ns() // 10**6,
    }
    bundle.add_json("platform.json", about)
    for number, each in enumerate(servers, 1):
        name = f"settings/{number}-{file_name(each.file.stem)}.json"
        if each.config is None:
            bundle.miss(name, each.error)
        else:
            settings = configuration.shown_tables(each.config, REMOVED)
            removed = [one.key for one in each.marked if one.part == "value"]
            bundle.add_json(name, {"file": str(each.file), "settings": settings}, removed)


async def _gather(
    bundle: Bundle, wanted: BundleRequest, configs: list[Config], credentials: CredentialsProvider | None
) -> None:
    """First what is there in any case, then the workers that the leader lists or that run here."""
    loop, http = asyncio.get_running_loop(), HttpClient(credentials)
    ends = loop.time() + ALL_SECONDS
    workers = {
        f"{configuration.advertised(each.worker.bind, each.worker.address, platform.node())}:{each.worker.http_port}"
        for each in configs
        if each.worker.directories
    }
    client = ControlClient(wanted.endpoints, credentials, log_missing=False) if wanted.endpoints else None
    try:
        if client is None:
            bundle.miss("cluster", "no masters are known: give --masters or --config, or set HOLDFAST_MASTERS")
        sources = [*_of_host(wanted, configs)]
        if client is not None:
            sources += _of_leader(client)
            for address in sorted({*client.endpoints, *_peers(configs)}):
                sources += _of_master(client, http, address)
        found = await _all(bundle, sources, ends)
        listed = found.get("cluster/workers.json", {}).get("workers", ())
        workers |= {each["http_address"] for each in listed if each.get("state") not in AWAY and "http_address" in each}
        await _all(bundle, [each for address in sorted(workers) for each in _of_worker(http, address)], ends)
    finally:
        await http.close()
        if client is not None:
            await client.close()


async def _all(bundle: Bundle, sources: list[_Source], ends: float) -> dict[str, Any]:
    """Gather sources, some at once, add them in their order, and return the documents by name."""
    turn, loop, gathered = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop(), 0

    async def one(source: _Source) -> bytes | Exception:
        nonlocal gathered
        async with turn:
            seconds = min(source.seconds, ends - loop.time())
            if gathered > BUNDLE_BYTES_MAX:
                return HoldfastError("the bundle is full")
            try:
                async with asyncio.timeout(seconds):
                    content = await source.gather()
            except TimeoutError:
                late = f"no answer within {seconds:.0f} s" if seconds > 0 else f"{ALL_SECONDS:g} s were over before"
                return HoldfastError(late)
            except (HoldfastError, OSError, ValueError) as error:
                return error
            gathered += len(content)
            return content

    found = await asyncio.gather(*(awaited(one(each)) for each in sources))
    documents = dict[str, Any]()
    for source, content in zip(sources, found, strict=True):
        try:
            if isinstance(content, Exception):
                bundle.miss(source.name, content)
            elif source.name.endswith(".json"):
                documents[source.name] = read_json(content)
                bundle.add_json(source.name, documents[source.name])
            else:
                bundle.add_text(source.name, content.decode("utf-8", "replace"))
        except ValueError as error:
            bundle.miss(source.name, error)
    return documents


def _of_host(wanted: BundleRequest, configs: Iterable[Config]) -> Iterator[_Source]:
    """The doctor, the storage directories and the logs of this host."""

    def command(name: str, seconds: float, *words: str) -> _Source:
        whole = [sys.executable, "-P", "-m", "holdfast.tools", *words, "--json"]
        return _Source(name, seconds, lambda: _output(whole, _OUTPUT_BYTES))

    def log(name: str, *words: str) -> _Source:
        async def whole_lines() -> bytes:
            end = await _output(words, _LOG_BYTES)
            # The first line of a cut log may begin within a secret, whose rest nobody would recognise.
            return end if len(end) < _LOG_BYTES else end.partition(b"\n")[2]

        return _Source(name, _COMMAND_SECONDS, whole_lines)

    options = [word for file in wanted.files for word in ("--config", str(file))]
    options += ["--masters", wanted.endpoints] if wanted.endpoints else []
    options += ["--spark-conf", str(wanted.spark_conf)] if wanted.spark_conf is not None else []
    yield command("doctor.json", _DOCTOR_SECONDS, "doctor", *options, *wanted.words)
    paths = [each.path for config in configs for each in config.worker.directories]
    for number, path in enumerate(dict.fromkeys(paths), 1):
        yield command(f"directories/{number}.json", _COMMAND_SECONDS, "inspect", path, "--names")
    for number, file in enumerate(wanted.logs, 1):
        yield log(f"logs/{number}-{file_name(file.name)}.txt", "tail", "-c", str(_LOG_BYTES), "--", str(file))
    if shutil.which("journalctl"):
        how = ("--no-pager", "--quiet", "--lines", str(_JOURNAL_LINES), "--output", "short-iso-precise")
        yield log("logs/journal.txt", "journalctl", "--unit", _UNITS, *how)


def _of_leader(client: ControlClient) -> Iterator[_Source]:
    for name, (method, request) in OF_THE_LEADER.items():

        async def answered(method: str = method, request: Message = request) -> bytes:
            return json.dumps(plain(await client.call(method, request, deadline_s=_ANSWER_SECONDS))).encode()

        yield _Source(f"cluster/{name}", 2 * _ANSWER_SECONDS, answered)


def _of_master(client: ControlClient, http: HttpClient, address: str) -> Iterator[_Source]:
    folder = f"masters/{file_name(address)}"
    for name, (method, request) in OF_EACH_MASTER.items():

        async def answered(method: str = method, request: Message = request) -> bytes:
            return json.dumps(plain(await client.ask(address, method, request, timeout_s=_HTTP_SECONDS))).encode()

        yield _Source(f"{folder}/{name}", 2 * _HTTP_SECONDS, answered)
    yield _page(http, address, "/metrics", f"{folder}/metrics.txt")


def _of_worker(http: HttpClient, address: str) -> Iterator[_Source]:
    folder = f"workers/{file_name(address)}"
    yield _page(http, address, "/metrics", f"{folder}/metrics.txt")
    yield _page(http, address, "/status", f"{folder}/status.json")


def _page(http: HttpClient, address: str, path: str, name: str) -> _Source:
    async def body() -> bytes:
        return await http.get(address, path, _HTTP_SECONDS)

    return _Source(name, 2 * _HTTP_SECONDS, body)


def _peers(configs: Iterable[Config]) -> set[str]:
    return {str(peer.http) for config in configs for peer in config.master.peers}


async def _output(words: Iterable[str], bytes_max: int) -> bytes:
    """The last bytes of what a process prints. Raises OSError with its errors if that is nothing, or it failed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stderr is not None
    errors = awaited(_last(process.stderr, _ERROR_BYTES))
    try:
        printed = await _last(process.stdout, bytes_max)
        complaint = await errors
        await process.wait()
    except BaseException:
        errors.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        raise
    if not printed or process.returncode not in (0, 1):
        raise OSError(complaint.decode("utf-8", "replace").strip() or "it printed nothing")
    return printed


async def _last(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    kept = bytearray()
    while chunk := await stream.read(256 * 1024):
        kept += chunk
        if len(kept) > 2 * bytes_max:
            del kept[:-bytes_max]
    return bytes(kept[-bytes_max:])
