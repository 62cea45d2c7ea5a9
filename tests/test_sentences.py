"""Docstrings and comments name their subject, so that a reader of one needs no other page to understand it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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


class Rule(NamedTuple):
    """A pattern that no docstring or no comment (`kind`) may have, and what to write `instead`.

    `most`: how often a room still has it: lower the numbers whenever there are fewer."""

    kind: str
    pattern: re.Pattern[str]
    instead: str
    most: dict[str, int]


_ERROR = r"(?:Conflict|Corrupt|Exists|Fenced|Invalid|Moved|NotFound|Opening|Sealed|Truncated|Unavailable|[A-Z]\w+Error)"
RULES = (
    Rule(
        "docstring",
        re.compile(r";\s+whether\b"),
        "Returns whether ..., as a sentence of its own",
        {},
    ),
    Rule(
        "docstring",
        # A sentence that begins with Raises may have a semicolon.
        re.compile(rf"(?:^|[.!?]\s+)(?!Raises|\s)[^.!?;]*;\s+{_ERROR}(?=[\s,.(]|$)(?!\s+is\b)"),
        "Raises ..., as a sentence of its own",
        {},
    ),
    Rule(
        "docstring",
        re.compile(r"Go on with other settings"),
        "Apply `live` settings without a restart",
        {},
    ),
    Rule(
        "comment",
        re.compile(r"(?:they|those|it|one that|first:|last:)(?!\w)", re.IGNORECASE),
        "name the subject, or what is done before what",
        {},
    ),
    Rule(
        "docstring",
        re.compile(r"^Note that\b"),
        "Record that ...: \"Note that\" is what a text says to its reader",
        {},
    ),
)  # fmt: skip


class Text(NamedTuple):
    """A docstring or a comment.  `kind`: "comment", or the object of a docstring: class, function or property."""

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


def comments(place: str, source: str) -> Iterator[Text]:
    """Yield the comments of a module, from the first line of each on."""
    above = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone = token.line.lstrip().startswith("#")
        if not (alone and above == token.start[0] - 1):
            yield Text(f"{place}:{token.start[0]}", "comment", token.string.lstrip("# "))
        above = token.start[0] if alone else 0


def breaks(rule: Rule, text: Text) -> bool:
    """Return whether a text breaks a rule: a comment by its beginning, a docstring anywhere."""
    if rule.kind == "comment":
        return text.kind == "comment" and rule.pattern.match(text.text) is not None
    return text.kind != "comment" and rule.pattern.search(text.text) is not None


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
    assert not wrong, "\n".join(wrong)


def test_docstrings_of_functions_begin_with_a_verb(texts: list[Text]) -> None:
    without = [text.place for text in texts if text.kind == "function" and _NO_VERB.match(text.text)]
    assert not without, f"begin with a verb: {without}"


def _comments_like(rule: Rule) -> Iterator[Text]:
    # To split a module into tokens takes long, and few have such a word after a number sign.
    likely = re.compile(rf"#\s+{rule.pattern.pattern}", re.IGNORECASE)
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        if "generated" not in path.parts and likely.search(source):
            yield from comments(path.relative_to(SOURCE.parent).as_posix(), source)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.instead)
def test_texts_keep_the_rules(rule: Rule, texts: list[Text]) -> None:
    subject = _comments_like(rule) if rule.kind == "comment" else texts
    places = [text.place for text in subject if breaks(rule, text)]
    found = Counter(Path(place).parts[2] for place in places)
    more = [place for place in places if found[Path(place).parts[2]] > rule.most.get(Path(place).parts[2], 0)]
    assert not more, f"{rule.instead}; the bounds are in RULES: {more}"


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        ("def f():\n '''Add a file; whether there is space.'''", 0),
        ("def f():\n '''Add a file.  Returns whether there is space.'''", None),
        ("def f():\n '''Seal a segment; NotFound.'''", 1),
        ("def f():\n '''Write.\n\n Read a file, or its copy; OSError when there is none.'''", 1),
        ("def f():\n '''Seal a segment.  Raises Sealed (it is already); NotFound.'''", None),
        ("def f():\n '''Go on with other settings.'''", 2),
        ("def f():\n '''Note that a reader may wait.'''", 4),
        ("def f():\n '''Record that a reader waits.  Note that it may be none.'''", None),
        ("# They are closed.\nf()", 3),
        ("f()  # it may fail", 3),
        ("# Last: a reader may wait.\nf()", 3),
        ("# First in, first out.\nf()", None),
        ("# A file that is open stays:\n# it may be read.\nf()", None),
        ("# One that waits goes on.\nf()", 3),
        ("# Its name is known.\nf()", None),
        ("f('# They')", None),
    ],
)
def test_broken_rule_is_seen(source: str, broken: int | None) -> None:
    found = [*docstrings("x", source), *comments("x", source)]
    assert [number for number, rule in enumerate(RULES) if any(breaks(rule, text) for text in found)] == (
        [] if broken is None else [broken]
    )


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
