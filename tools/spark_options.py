"""Write the table of the Spark connector's options from its code.

python -m tools.spark_options            write docs/spark/options.md
python -m tools.spark_options --check    exit 1 when the page is stale
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from sarit.spark import options as common
from sarit.spark.formats import options as formats
from sarit.spark.iceberg import options as iceberg
from sarit.spark.registry import options as registry
from sarit.spark.sink import options as sink
from sarit.spark.source import options as source
from sarit.spark.source import streaming_options as streaming
from sarit.spark.tables import options as tables

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "spark" / "options.md"
TABLES: Final = {
    "For every use": common.OPTIONS,
    "Reading streams": source.OPTIONS,
    "Streaming reads": streaming.OPTIONS,
    "Columns and formats": formats.OPTIONS,
    "Schema registry": registry.OPTIONS,
    "Writing streams": sink.OPTIONS,
    "Metadata and key-value tables": tables.OPTIONS,
    "Iceberg tables of streams": iceberg.OPTIONS,
}
HEAD: Final = """# Options of the Spark connector

Names are read without regard to case. An unknown name is an error that lists the right ones. `make generate` writes
this page from the code.
"""


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    for title, options in TABLES.items():
        rows = [
            f"| `{option.name}` | {option.use} | {option.meaning} | {option.default} |"
            for option in options
            if option.name != "path"
        ]
        parts.append("\n".join([f"\n## {title}\n", "| option | for | meaning | default |", "|---|---|---|---|", *rows]))
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the page, or check it."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != wanted:
            sys.exit("docs/spark/options.md is stale: run make generate")
        return
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
