"""What the simulation does not reach is compared with the reasons that are given."""

from __future__ import annotations

from tests.sim.cover import ROOT, compared, functions, never_entered, reasons

_SOURCE = '''
class Store:
    def put(self):
        """It is written."""
        self.write()

    def get(self):
        def found():
            return 1

        return found()

    def size(self): ...
'''


def test_a_function_counts_by_the_statements_of_its_body() -> None:
    """A function of which no statement ran was never entered, whatever of its class was."""
    assert [*functions(_SOURCE)] == ["Store.put", "Store.get", "Store.get.found", "Store.size"]
    assert never_entered(_SOURCE, [2, 3, 5, 7, 8, 9, 11], [5, 9]) == ["Store.put", "Store.get.found"]


def test_a_new_gap_is_seen_and_an_old_reason_too() -> None:
    """What no pattern fits has no reason; a pattern that fits nothing is named."""
    found = ["a/b.py:Store.put", "a/c.py:look"]
    assert compared(found, ["a/b.py:*", "d/*"]) == (["a/c.py:look"], ["d/*"])


def test_reasons_are_for_files_that_there_are() -> None:
    """Each pattern fits a function of the engine or its cores: what is renamed or removed is taken out."""
    names = [
        f"{path.relative_to(ROOT)}:{name}"
        for part in ("worker/storage", "worker/core")
        for path in (ROOT / part).rglob("*.py")
        for name in functions(path.read_text())
    ]
    assert compared(names, reasons())[1] == []
