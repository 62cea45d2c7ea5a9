"""Write the tables of options in docs/operations/configuration.md from their declarations."""

from __future__ import annotations

from pathlib import Path

from sarit.cli.config_report import option_tables

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operations" / "configuration.md"
BEGIN, END = "<!-- options: begin -->\n\n", "\n<!-- options: end -->"


def main() -> None:
    """Replace what stands between the two marks."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + option_tables() + END + after)


if __name__ == "__main__":
    main()
