"""The catalogue of log events, the calls in the sources of both languages, and docs/operate/log_events.md agree."""

import re
from collections import Counter

import pytest

from holdfast.common.log_events import LogEvent, facts_text
from tests.docs import log_events
from tests.docs.log_events import JAVA, RESERVED, breaches, calls, calls_in, files
from tests.support.tree import ROOT
from tests.write_tables import JAVA_EVENTS, java_events

_NAME = re.compile(r"[a-z0-9]+\.[a-z0-9]+(_[a-z0-9]+)*")
#: Words of stories: a sentence says what is, and who is to do what.
_LITERARY = re.compile(r"\b(told|leads|stands|stood still|given up|turned away|well again|elsewhere)\b")


def test_nothing_logs_but_by_the_catalogue() -> None:
    """No source of either language logs in another way, or an event that is not there."""
    assert [breach for path, text in files().items() for breach in breaches(path, text)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("worker/server/x.py", "import logging"),
        ("worker/server/x.py", "def f():\n    from logging import getLogger"),
        ("client/x.py", "import warnings\nwarnings.warn('old')"),
        ("master/x.py", "log_event(LogEvent.WORKER_SAD, worker=1)"),
        ("master/x.py", "def f():\n    log_event(LogEvent.WORKER_LOST, message='it is gone')"),
        (f"{JAVA}X.java", 'private static final Logger LOG = LoggerFactory.getLogger("x");'),
        (f"{JAVA}X.java", 'System.err.println("x");'),
        (f"{JAVA}X.java", 'LogEvent.WORKER_SAD.log("worker", 1);'),
        (f"{JAVA}X.java", 'LogEvent.PUSH_SLOW.log("worker", 1, "level", 2);'),
    ],
)
def test_a_planted_breach_is_found(path: str, text: str) -> None:
    """What goes around the catalogue is found, in both languages."""
    assert list(breaches(path, text))


def test_every_event_is_logged_somewhere() -> None:
    """What nobody logs any more leaves the catalogue; `calls` finds a call, its facts, and who keeps it."""
    assert sorted(set(LogEvent.__members__) - {call.event for call in calls()}) == []
    planted = (
        "def f(x):\n    event = LogEvent.WORKER_LOST if x else LogEvent.WORKER_LEFT\n    tell(event, worker=1, **g())\n"
    )
    found = list(calls_in("master/x.py", planted + "def g():\n    return {'host': 2}"))
    assert [(each.event, each.facts, each.kept) for each in found] == [
        ("WORKER_LOST", ("worker", "host"), True),
        ("WORKER_LEFT", ("worker", "host"), True),
    ]
    (java,) = calls_in(f"{JAVA}X.java", 'LogEvent.PUSH_SLOW.log(error, "task", where,\n "reason", reason);')
    assert (java.event, java.facts, java.part) == ("PUSH_SLOW", ("task", "reason"), "plug-in")


@pytest.mark.parametrize("event", LogEvent)
def test_an_event_can_be_read(event: LogEvent) -> None:
    """A dotted name, a sentence in plain words with a full stop and no facts in it, and what to do."""
    assert _NAME.fullmatch(event.dotted)
    for text in (event.sentence, event.to_do):
        assert text[0].isupper() or text[0] == "`"
        assert text.endswith(".")
        assert not _LITERARY.search(text)
        assert not set("|%{}") & set(text)


def test_sentences_differ() -> None:
    """Whoever reads one knows which event it is."""
    assert [text for text, times in Counter(event.sentence for event in LogEvent).items() if times > 1] == []


def test_the_pages_of_the_docs_are_current() -> None:
    """docs/operate/log_events.md and LogEvent.java are what is made of the catalogue today: python -m
    tests.write_docs and tests.write_tables; each event has an anchor."""
    page = (ROOT / "docs/operate/log_events.md").read_text("utf-8")
    assert page == log_events.documentation()
    assert all(page.count(f'<a id="{event}"></a>') == 1 for event in LogEvent)
    assert JAVA_EVENTS.read_text("utf-8") == java_events()


def test_what_people_are_sent_to_is_there() -> None:
    """Remedies, and links of other pages, name events that there are."""
    named = [each for event in LogEvent for each in re.findall(r"`([a-z]+\.[a-z_]+)`", event.to_do)]
    for path in (ROOT / "docs").rglob("*.md"):
        named += re.findall(r"log_events\.md#([\w.]+)", path.read_text("utf-8"))
    assert len(named) > 20
    assert sorted(set(named) - {event.dotted for event in LogEvent}) == []


def test_facts_are_distinguished() -> None:
    """What a value holds begins no other one: spaces, quotes and equal signs stand in quotes."""
    facts = {"worker": "w3", "why": 'it "ended" = ok', "n": 3, "of": ["a", "b"], "none": "", "error": ValueError()}
    assert facts_text(facts) == r'worker=w3 why="it \"ended\" = ok" n=3 of=a,b none="" error=ValueError()'
    assert "message" in RESERVED
