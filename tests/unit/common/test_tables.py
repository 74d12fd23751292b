"""The tables that both languages have are those of common/wire.toml."""

import pytest
from grpc import StatusCode

from holdfast.master.api.statuses import http_status_of
from tests.write_tables import FILES, python_statuses, source


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_tables_are_what_the_source_says(path):
    """Each committed table is what would be written; if not: python -m tests.write_tables."""
    assert path.read_text("utf-8") == FILES[path](source()), "run: python -m tests.write_tables"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_changed_source_changes_the_tables(path):
    """A number that is changed in the source is found in every table that has it."""
    changed = source()
    changed["status"]["BUSY"]["number"] = 54_321
    changed["limit"]["CHUNK_BYTES"]["value"] = "54_321"
    assert path.read_text("utf-8") != FILES[path](changed)


def test_a_status_without_a_code_is_found():
    """Nobody adds a status and forgets how masters say it: the tables cannot be written."""
    changed = source()
    del changed["status"]["QUOTA_EXCEEDED"]["code"]
    with pytest.raises(KeyError, match="code"):
        python_statuses(changed)


def test_statuses_name_what_there_is():
    """Each word of the table is one that both languages have, and no number is there twice."""
    said = source()
    for name, row in said["status"].items():
        assert row["next"].upper() in said["word"]["Next"], name
        assert row["code"].upper() in StatusCode.__members__, name
        assert http_status_of(row["code"]) >= 400, name
        assert row.get("push", "stop").upper() in said["word"]["PushDisposition"], name
        assert row.get("fetch", "stop").upper() in said["word"]["FetchDisposition"], name
        assert {each.upper() for each in row.get("ends", ())} <= said["word"]["Loop"].keys(), name
        assert row.get("map", "move") == "move", name
        assert row.get("spark", "rerun") == "rerun", name
    numbers = [row["number"] for row in said["status"].values()]
    assert len(set(numbers)) == len(numbers)
