"""Writes the pages of docs/ that are made from code, in whole or in part: `python -m tests.write_docs`.

Tests compare each page with what would be written, so a page that was forgotten is found.
"""

from tests.docs import api, configuration, log_events, metrics, records
from tests.support.tree import ROOT

PAGES = {
    ROOT / "docs" / "operate" / "configuration.md": configuration.documentation,
    ROOT / "docs" / "use" / "api.md": api.documentation,
    ROOT / "docs" / "operate" / "metrics.md": metrics.documentation,
    ROOT / "docs" / "operate" / "log_events.md": log_events.documentation,
    ROOT / "docs" / "operate" / "cli.md": records.documentation,
}


if __name__ == "__main__":
    for path, text in PAGES.items():
        path.write_text(text(), "utf-8")
