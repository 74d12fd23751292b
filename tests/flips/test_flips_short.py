"""The short form of `tox -e flips`."""

from tests.flips.run import run


def test_flips_and_cuts_are_survived():
    """60 flipped bytes and 12 cut files: no wrong row, no sealed file forgotten, and verify names the damage."""
    seen, breaches = run(flips=60, truncations=12, seed=7)
    assert not breaches, breaches
    assert sum(seen.values()) == 72
