"""Java programs that run beside a test; the classes are those of tests/support/jvm.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jvm import Jvm, Programs


@pytest.fixture
def programs(jvm: Jvm, tmp_path: Path) -> Iterator[Programs]:
    """Start Java programs with `programs.start(main, *args)`; they are gone when the test is."""
    started = Programs(jvm, tmp_path)
    yield started
    started.kill()
