"""The table of features in docs/use/spark.md is that of the records, and records come from tests that ran."""

from tests.docs.features import PAGE, documentation
from tests.support.features import FEATURES, merged, records
from tests.support.tree import ROOT


def test_the_table_is_what_the_records_say():
    """The committed page is what would be written; if not: python -m tests.write_tables."""
    assert PAGE.read_text("utf-8") == documentation(records()), "run: python -m tests.write_tables"
    assert documentation(merged(records(), "9.9.9", "99", {FEATURES[0]: True})) != documentation(records())


def test_every_feature_has_a_test_and_every_record_a_feature():
    """Each name is that of a mark below tests/spark, and no record has another."""
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tests" / "spark").glob("test_*.py"))
    assert [name for name in FEATURES if f'feature("{name}")' not in sources] == []
    assert {name for record in records() for name in record["features"]} <= {*FEATURES}


def test_a_record_is_what_passed_last():
    """A run adds what passed and takes out what failed; another release of the line or its Java begins anew."""
    one, other, third, *_ = FEATURES
    first = merged([], "4.1.2", "17.0.1", {other: True, one: True, third: False})
    assert first == [{"spark": "4.1.2", "java": "17.0.1", "features": [one, other]}]
    second = merged(first, "4.1.2", "17.0.1", {one: False, third: True})
    assert second == [{"spark": "4.1.2", "java": "17.0.1", "features": [other, third]}]
    both = merged(second, "3.5.8", "21.0.8", {one: True})
    assert [each["spark"] for each in both] == ["3.5.8", "4.1.2"]
    assert merged(both, "4.1.3", "17.0.1", {one: True})[1]["features"] == [one]
