"""Mutated calls and raw garbage against every port of a master, HTTP, gRPC and Raft, and a worker's HTTP port."""

import asyncio
import json
import random
import urllib.request
from typing import Any

import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import Message

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.proto import holdfast_pb2 as pb

ANSWER_SECONDS_MAX = 30.0
#: Calls under way at a time, to each port.
CALLERS = 4
#: What a gRPC call may end with: an answer, or a status. UNKNOWN would be an exception that nobody foresaw.
_BAD_CODES = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def methods() -> list[tuple[str, type[Message]]]:
    """Every method of the control plane as "/holdfast.v1.Service/Method" with its request's class."""
    return [
        (f"/{service.full_name}/{method.name}", getattr(pb, method.input_type.name))
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def draw(chance: random.Random, kind: type[Message], depth: int = 0) -> Message:
    """A message with random fields, extreme ones included."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.3:
            continue
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or depth > 2:
                continue
            child = draw(chance, getattr(pb, field.message_type.name), depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(child)
            else:
                getattr(message, field.name).CopyFrom(child)
        elif not field.is_repeated:
            setattr(message, field.name, _scalar(chance, field.cpp_type, field))
    return message


def _scalar(chance: random.Random, kind: int, field: Any) -> object:
    """A value of a scalar field."""
    top = {field.CPPTYPE_UINT32: 2**32 - 1, field.CPPTYPE_INT32: 2**31 - 1}.get(kind, 2**63 - 1)
    if kind == field.CPPTYPE_STRING and field.type == field.TYPE_BYTES:
        return chance.randbytes(chance.choice([0, 1, 16, 16, 200]))
    if kind == field.CPPTYPE_STRING:
        return chance.choice(["", "fuzz", "\0", "ü" * 300, "127.0.0.1:1"])
    if kind == field.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return chance.choice([0, 1, 2])
    # Leases and waits that are long would only keep the test waiting.
    return chance.choice([0, 1, 5, 1_000]) if field.name.endswith("_ms") else chance.choice([0, 1, 7, top])


def spoil(chance: random.Random, data: bytes) -> bytes:
    """Bytes of a message with something wrong, or as they were."""
    match chance.randrange(4):
        case 0:
            return data
        case 1:
            return data[: chance.randrange(len(data) + 1)]
        case 2:
            return chance.randbytes(chance.choice([1, 50, 5_000]))
    out = bytearray(data or b"\0")
    out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


async def fuzz_ports(chance: random.Random, cluster: LocalCluster, calls: int, problems: list[str]) -> int:
    """Make `calls` calls to every port but the data plane's, some of them well-formed; what must not be is added to
    `problems`. Returns how many were made."""
    master = cluster.masters[0]
    discover = await asyncio.to_thread(_discover, master.address)
    grpc_address = discover["masters"][0]["grpc"] if discover.get("masters") else discover["leaderGrpc"]
    raft_address = _raft_address(cluster)
    left = calls

    async def keep_calling(channel: grpc.aio.Channel) -> None:
        nonlocal left
        while left > 0:
            path, kind = chance.choice(methods())
            if path.endswith("/Forget"):
                continue  # it may well forget what the run checks at its end
            left -= 1
            request = draw(chance, kind)
            await asyncio.gather(
                _grpc_call(channel, path, spoil(chance, request.SerializeToString()), problems),
                _http_call(master.address, path, *_http_body(chance, request), problems),
                _garbage(grpc_address, chance, _HTTP2_PREFACE, problems),
                _garbage(raft_address, chance, b"", problems),
                _garbage(cluster.workers[0].http, chance, b"GET /status HTTP/1.1\r\n", problems),
            )

    async with grpc.aio.insecure_channel(grpc_address) as channel:
        await asyncio.gather(*(keep_calling(channel) for _ in range(CALLERS)))
    return (calls - left) * 5


def _discover(address: str) -> dict:
    request = urllib.request.Request(
        f"http://{address}/holdfast.v1.Shuffles/Discover", b"{}", {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
        return json.load(answer)


def _raft_address(cluster: LocalCluster) -> str:
    ready = cluster.masters[0].wait_ready()
    return str(ready["raft"])


async def _grpc_call(channel: grpc.aio.Channel, path: str, body: bytes, problems: list[str]) -> None:
    call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    try:
        await call(body, timeout=ANSWER_SECONDS_MAX)
    except grpc.aio.AioRpcError as error:
        typed = any(key == "holdfast-status" for key, _ in error.trailing_metadata() or ())
        unreadable = "deserializ" in (error.details() or "")
        if error.code() in _BAD_CODES and not typed and not unreadable:
            problems.append(f"gRPC {path}: {error.code()} {error.details()} for {body.hex()[:200]}")


def _http_body(chance: random.Random, request: Message) -> tuple[bytes, str]:
    """A spoilt body and its content type."""
    if chance.random() < 0.5:
        return spoil(chance, request.SerializeToString()), "application/proto"
    return spoil(chance, json_format.MessageToJson(request).encode()), "application/json"


async def _http_call(address: str, path: str, body: bytes, content_type: str, problems: list[str]) -> None:
    """POST; any answer of HTTP but 500 is an answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: {content_type}\r\n"
    sent = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    received = await _exchange(address, sent, problems, eof=False)
    if not received.startswith(b"HTTP/1.1 ") or received.startswith(b"HTTP/1.1 500"):
        problems.append(f"HTTP {path}: {received[:300]!r} for {body[:100]!r}")


async def _garbage(address: str, chance: random.Random, prefix: bytes, problems: list[str]) -> None:
    """Raw bytes, with a right beginning now and then; the connection must end."""
    start = prefix if chance.random() < 0.5 else b""
    length = chance.choice([b"", (2**31).to_bytes(4, "little"), (100).to_bytes(4, "big")])
    await _exchange(address, start + length + chance.randbytes(chance.choice([1, 40, 3_000])), problems)


async def _exchange(address: str, sent: bytes, problems: list[str], eof: bool = True) -> bytes:
    host, port = address.split(":")
    received = b""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(sent)
                if eof:
                    writer.write_eof()
                while piece := await reader.read(1 << 16):
                    received += piece
            except ConnectionError:
                pass  # closed before it had read everything: an end like any other
            writer.close()
    except TimeoutError:
        problems.append(f"{address} did not end a connection after {sent[:60]!r}")
    except OSError as error:
        problems.append(f"{address} cannot be reached: {error}")
    return received
