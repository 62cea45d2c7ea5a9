"""Write the tables of metrics in docs/operations/metrics.md from the table in the code.

python -m tools.metrics_page            write them
python -m tools.metrics_page --check    exit 1 when the page is stale
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from sarit.admin.metric_table import SECTIONS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "operations" / "metrics.md"
BEGIN: Final = "## All metrics\n"


def tables() -> str:
    """The end of the page."""
    parts = [BEGIN, "`make generate` writes these tables from `src/sarit/admin/metric_table.py`.\n"]
    for title, metrics in SECTIONS.items():
        rows = [
            f"| `{metric.name}` | {metric.kind.value} | {', '.join(metric.labels)} | {metric.help} |"
            for metric in metrics
        ]
        parts.append("\n".join([f"### {title}\n", "| metric | kind | labels | what |", "|---|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def page() -> str:
    """The whole page as it should be."""
    head, found, _ = PAGE.read_text().partition(BEGIN)
    assert found, f"{PAGE} has no line {BEGIN!r}"
    return head + tables()


def main() -> None:
    """Write the page, or check it."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != wanted:
            sys.exit("docs/operations/metrics.md is stale: run make generate")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
