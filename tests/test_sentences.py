"""Docstrings say what their object is or does, so that a reader of one needs no other page to know its subject."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).resolve().parent.parent / "src"

# A docstring that begins so leaves its subject to another page, or to its reader.
_PRONOUNS = re.compile(r"(It|See|What|As|They|These|Those|Itself)\b")
# In a docstring of few words nothing says what such a word stands for.
_IN_SHORT = re.compile(r"\b(it|its|them|they|those|itself|here|there)\b", re.IGNORECASE)
_FEW_WORDS = 4
# The beginning of a noun phrase, where a function's docstring should have a verb.
_NO_VERB = re.compile(r"(The|A|An|Whether|How|Where|Who|Whose|Why|When|All|One|Each|Every|Which|No|Nothing|Nobody)\b")
# Room -> how many docstrings of its functions have no verb at their beginning: lower it whenever there are fewer.
MOST_WITHOUT_VERB = {
    "admin": 81, "cli": 5, "client": 45, "cluster": 9, "controller": 5, "coordination": 6, "core": 2, "env": 6,
    "index": 1, "log": 15, "ops": 12, "process": 31, "rpc": 22, "security": 1, "spark": 4, "storage": 3, "store":
    70,
}  # fmt: skip


# Modules whose old docstrings are not mended yet.
LATER = (
    "src/sarit/admin/console/", "src/sarit/admin/rest/", "src/sarit/cluster/controller.py",
    "src/sarit/process/child.py", "src/sarit/process/supervisor.py", "src/sarit/rpc/",
)  # fmt: skip


class Text(NamedTuple):
    """A docstring, and whose it is: a class, a function, or a property, which may be named like a thing."""

    place: str
    kind: str
    text: str


def _kind(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    names = {part for decorator in node.decorator_list for part in re.findall(r"\w+", ast.unparse(decorator))}
    return "property" if names & {"property", "cached_property", "command", "group"} else "function"


def docstrings(place: str, source: str) -> Iterator[Text]:
    """Yield the docstrings of all classes and functions of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield Text(f"{place}:{node.lineno} {node.name}", _kind(node), text)


def faults(text: Text) -> str | None:
    """Return what is wrong with a docstring, or None."""
    if _PRONOUNS.match(text.text):
        return "begin with what it is or does"
    first = re.split(r"(?<=[.!?])\s", text.text)[0]
    if text.kind == "function" and len(first.split()) <= _FEW_WORDS and (found := _IN_SHORT.search(first)):
        return f"name what {found[0]!r} stands for"
    return None


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    paths = (path for path in sorted(SOURCE.rglob("*.py")) if "generated" not in path.parts)
    return [text for path in paths for text in docstrings(path.relative_to(SOURCE.parent).as_posix(), path.read_text())]


def test_docstrings_name_their_subject(texts: list[Text]) -> None:
    wrong = [f"{text.place}: {fault}: {text.text.splitlines()[0]}" for text in texts if (fault := faults(text))]
    wrong = [line for line in wrong if not line.startswith(LATER)]
    assert not wrong, "\n".join(wrong)


def test_docstrings_of_functions_begin_with_a_verb(texts: list[Text]) -> None:
    without = [text.place for text in texts if text.kind == "function" and _NO_VERB.match(text.text)]
    found = Counter(Path(place).parts[2] for place in without)
    more = {folder: number for folder, number in found.items() if number > MOST_WITHOUT_VERB.get(folder, 0)}
    assert not more, f"begin with a verb; the bounds are in MOST_WITHOUT_VERB: {more}"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def f():\n '''It is done.'''", "begin"),
        ("class A:\n '''What a store knows.'''", "begin"),
        ("def f():\n '''See `Index`.'''", "begin"),
        ("def f():\n '''Close it.'''", "name what 'it'"),
        ("def f():\n '''Close it once.  Raises OSError.'''", "name what 'it'"),
        ("def f():\n '''Close the file.'''", None),
        ("def f():\n '''Close the file and remove it.'''", None),
        ("def f():\n '''Assign a container.'''", None),
    ],
)
def test_fault_is_seen(source: str, fault: str | None) -> None:
    (text,) = docstrings("x", source)
    assert (faults(text) or "").startswith(fault or "")
    assert bool(faults(text)) == bool(fault)
