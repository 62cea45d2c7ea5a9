"""Write the tables of limits in docs/operations/limits.md from the bounds in the code and their comments.

python -m tools.limits_page    write them
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = _ROOT / "docs" / "operations" / "limits.md"
BEGIN: Final = "## All limits\n"
_SOURCE: Final = _ROOT / "src" / "sarit"
_UNITS: Final = {" * KIB": " KiB", " * MIB": " MiB"}


def _rows(lines: list[str], tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            continue
        first = node.lineno - 1
        while re.match("# (?!-- )", lines[first - 1]):
            first -= 1
        comment = [line[2:] for line in lines[first : node.lineno - 1]]
        comment += [part.strip() for part in lines[(node.end_lineno or 0) - 1].split("  # ")[1:]]
        value = ast.unparse(node.value)
        for unit, text in _UNITS.items():
            value = value.replace(unit, text)
        text = " ".join(comment).replace("  ", " ").replace("|", "\\|")
        yield f"| `{ast.unparse(node.target)}` | {value.replace('*', '×')} | {text} |"


def tables() -> str:
    """Return the end of the page: a table for each room."""
    parts = [BEGIN, "`make generate` writes these tables from the comments in the files that they name.\n"]
    for path in sorted(_SOURCE.rglob("limits.py")):
        source = path.read_text()
        rows = _rows(source.splitlines(), ast.parse(source))
        head = f"### {path.relative_to(_SOURCE)}\n", "| limit | value | what |", "|---|---|---|"
        parts.append("\n".join([*head, *rows, ""]))
    return "\n".join(parts)


def page() -> str:
    """Return the whole page as it should be."""
    head, found, _ = PAGE.read_text().partition(BEGIN)
    assert found, f"{PAGE} has no line {BEGIN!r}"
    return head + tables()


if __name__ == "__main__":
    PAGE.write_text(page())
