"""What the page marks in the hits of a search is what the node would mark."""

from __future__ import annotations

import json

import pytest

from sarit.search.highlights import Marks, marks_of_text, spans
from tests.unit.admin.console.scripts import evaluate, needs_node

FIELDS = [("level", "keyword"), ("ms", "number")]
TEXTS = [
    "An Error, errors, ERROR_7", "connection timed out; timed... out", '{"level": "warn-1", "ms": 7}', "在東京駅",
    "ΟΔΟΣ οδος", "<mark>error</mark> <img src=x onerror=error>", "a\U0001f600error\U0001f600 b", "x" * 300 + " error",
    "error " * 300, "", "ünï error",
]  # fmt: skip
QUERIES = [
    "error",
    '"timed out"',
    "err*",
    "level:warn-1",
    "error OR timed -out",
    "東京",
    "οδος",
    "*",
    "ms:>=5",
    "x" * 200,
    "img",
]


@needs_node
@pytest.mark.parametrize("query", QUERIES)
def test_page_marks_what_the_node_marks(query):
    marks = marks_of_text(query, FIELDS)
    found = f"spans(text, {json.dumps(marks.document())}).map(([begin, end]) => text.slice(begin, end))"
    shown = evaluate("marks.js", f"{json.dumps(TEXTS)}.map((text) => {found})")
    assert shown == [[text[begin:end] for begin, end in spans(text, marks)] for text in TEXTS]


@needs_node
def test_long_line_shows_where_it_was_found():
    marks = json.dumps(Marks(frozenset({"error"})).document())
    line = json.dumps("x " * 500 + "the error here")
    found = evaluate("marks.js", f"excerpt({line}, {marks}, 100)")
    assert found.startswith("…")
    assert "the error here" in found
    assert len(found) <= 101
    assert evaluate("marks.js", f"excerpt({line}, null, 100)") == ("x " * 50)
