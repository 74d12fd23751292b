"""What things are called (common/ids.py)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey, read_shuffle_name, shuffle_name

U32 = st.integers(0, 0xFFFF_FFFF)


@pytest.mark.parametrize(
    ("application", "shuffle", "generation", "name"),
    [
        ("nightly", 7, 0, "nightly/7"),
        ("nightly", 7, 1, "nightly/7/1"),
        ("a/b", 7, 0, "a/b/7"),
        ("etl/2026", 7, 0, "etl/2026/7/0"),
    ],
)
def test_a_shuffle_has_one_name(application: str, shuffle: int, generation: int, name: str) -> None:
    """The generation stands there after the first one, and where an application's name ends like a shuffle's."""
    assert shuffle_name(application, shuffle, generation) == name


@given(st.text(min_size=1), U32, U32)
@example("a/1", 2, 0)
@example("a/1/2", 3, 0)
@example("\n/4", 3, 0)
@example("a/", 3, 0)
def test_a_name_is_read_as_it_was_meant(application: str, shuffle: int, generation: int) -> None:
    """Whatever the application is called."""
    found = read_shuffle_name(shuffle_name(application, shuffle, generation))
    assert (found[0], found[1], found[2] or 0) == (application, shuffle, generation)


@pytest.mark.parametrize("wrong", ["", "nightly", "nightly/", "/7", "nightly/x", "nightly/7.1", "nightly/4294967296"])
def test_what_names_no_shuffle_is_refused(wrong: str) -> None:
    """In a sentence that says how one is named."""
    with pytest.raises(ValueError, match="APP/SHUFFLE/GENERATION"):
        read_shuffle_name(wrong)


def test_a_key_is_called_by_how_its_instance_begins() -> None:
    """Where the application's name is not known, as in errors of workers and clients."""
    key = ShuffleKey(Instance(bytes(range(0xA0, 0xB0))), ShuffleId(7), Generation(0))
    assert (str(key), str(ShuffleKey(key.instance, key.shuffle, Generation(2)))) == ("a0a1a2a3/7", "a0a1a2a3/7/2")
