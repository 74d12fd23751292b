"""Generated protobuf code is committed; it is what protoc makes of the .proto files today."""

import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

PROTOS = sorted(
    path.relative_to(ROOT) for part in ("common", "master") for path in (ROOT / part / "proto").glob("*.proto")
)


@pytest.mark.parametrize("proto", PROTOS, ids=str)
def test_generated_code_is_current(proto: Path, tmp_path: Path):
    """Regenerating changes nothing, so nobody edited the generated files or forgot them."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs the extra `protoc`")
    out = tmp_path / "out"
    out.mkdir()
    arguments = [f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}", str(ROOT / "holdfast" / proto)]
    assert protoc.main([sys.argv[0], *arguments]) == 0
    for suffix in ("_pb2.py", "_pb2.pyi"):
        made = proto.with_name(proto.stem + suffix)
        assert (out / "holdfast" / made).read_text() == (ROOT / made).read_text(), f"{made} is not what {proto} says"
