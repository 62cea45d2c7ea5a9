"""The documents name modules that exist, and keep their lines short."""

from __future__ import annotations

import re
from pathlib import Path

from tools import architecture_page

ROOT = Path(__file__).resolve().parent.parent
# Pages that describe today's code.  Decisions and the change log describe the code of their day.
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
    *sorted((ROOT / "docs" / "formats").glob("*.md")),
]
MAX_LINE_CHARACTERS = 120
MAX_ARCHITECTURE_LINES = 250
# `store/container/state.py`, `tests/contract/`: a path in backticks with at least one slash.
_NAMED = re.compile(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.(?:py|proto|md|sh|txt|json|jsonl|toml))?)`")
# Where a path may begin.  A path under src/sarit is written without it.
_BASES = (ROOT, ROOT / "src", ROOT / "src" / "sarit", ROOT / "src" / "sarit" / "ops", ROOT / "docs")


def named_paths(text: str) -> list[str]:
    """Paths of this repository that a text names in backticks."""
    return _NAMED.findall(text)


def test_documents_name_files_that_exist() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in named_paths(page.read_text())
        if not any((base / path).exists() for base in (*_BASES, page.parent))
    ]
    assert not wrong, "\n".join(wrong)


def test_map_of_the_architecture_is_what_the_code_has() -> None:
    assert architecture_page.PAGE.read_text() == architecture_page.page(), "run `make generate` and commit"
    assert len(architecture_page.PAGE.read_text().splitlines()) <= MAX_ARCHITECTURE_LINES


def test_index_lists_every_decision_once() -> None:
    decisions = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", (decisions / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in decisions.glob("[0-9]*.md"))


def test_named_paths_are_found_in_a_text() -> None:
    text = "See `store/container/state.py`, `tests/contract/` and `Segment.check`; not `a word` or `state.py`."
    assert named_paths(text) == ["store/container/state.py", "tests/contract/"]


def test_lines_of_documents_are_short() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}:{number} has {len(line)} characters"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > MAX_LINE_CHARACTERS and not line.startswith("|") and "](" not in line
    ]
    assert not wrong, "\n".join(wrong)


def test_no_page_installs_by_a_name_that_anybody_may_take() -> None:
    """The name is not registered: the path of the wheel stands in each command."""
    by_name = re.compile(r"pip install [^`\n]*(?<![-\w./])sarit(?![-\w.])")
    pages = [
        *PAGES,
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    ]
    wrong = {f"{page.relative_to(ROOT)}: {found[0]}" for page in pages for found in by_name.finditer(page.read_text())}
    assert not wrong, "\n".join(sorted(wrong))
    for text in ("pip install sarit", "pip install 'sarit[node]'", 'pip install -U "sarit"'):
        assert by_name.search(text)
    assert not by_name.search("pip install 'dist/sarit-0.1.0-py3-none-any.whl[node]'")
