"""Which parts of a text a query marks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.search.analyzer import tokens
from sarit.search.highlights import marked, marks_of, spans
from sarit.search.limits import MAX_HIGHLIGHTS, MAX_TOKEN_CHARACTERS
from sarit.search.query import ALL_TEXT, And, Equals, Everything, Exists, Not, Or, Phrase, Prefix, Range, Term


def word(token):
    return Term(ALL_TEXT, token)


def shown(text, query):
    """The text with its marked parts in brackets."""
    return marked(text, spans(text, marks_of(query)), "[", "]")


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("An Error, errors, ERROR_7", word("error"), "An [Error], errors, [ERROR]_7"),
        ("connection timed out", Phrase(ALL_TEXT, ("timed", "out")), "connection [timed out]"),
        ("out timed; timed... out", Phrase(ALL_TEXT, ("timed", "out")), "out timed; [timed... out]"),
        ("time timer", Prefix(ALL_TEXT, "time"), "[time] [timer]"),
        ('{"id": "c-7", "n": 7}', Equals("id", "c-7"), '{"id": "[c-7]", "n": 7}'),
        ('{"n": "7.0"}', Equals("n", 7.0), '{"n": "7.0"}'),
        ("host web-12 web-2", Prefix("host", "web-1"), "host [web]-[12] [web]-2"),
        ("a b c", And((word("a"), Or((word("c"), word("x"))))), "[a] b [c]"),
        ("a b", And((word("a"), Not(word("b")))), "[a] b"),
        ("a b", Not(word("a")), "a b"),
        ("a 5", And((Everything(), Exists("a"), Range("n", 1.0, 9.0))), "a 5"),
        ("a b c d", Or((Phrase("", ("a", "b")), Phrase("", ("b", "c")), word("d"))), "[a b c] [d]"),
        ("a b c", Or((word("a"), Phrase("", ("a", "b", "c")))), "[a b c]"),
        ("", word("a"), ""),
        ("在東京駅", Phrase("", ("東", "京")), "在[東京]駅"),
        ("ΟΔΟΣ οδος", word("οδοσ"), "[ΟΔΟΣ] [οδος]"),
    ],
)
def test_marked_parts(text, query, expected):
    assert shown(text, query) == expected


def test_letters_that_become_two_when_they_are_lowered():
    # The dotted capital I becomes an i and a dot of its own, which is no part of a word.
    assert shown("İİ error", word("error")) == "İİ [error]"
    assert shown("xİ", word("xi")) == "[xİ]"


def test_a_long_word_is_cut_as_the_analyzer_cuts_it():
    long = "x" * (MAX_TOKEN_CHARACTERS + 5)
    assert shown(f"a {long}", word(long[:MAX_TOKEN_CHARACTERS])) == f"a [{long}]"


def test_marks_are_bounded():
    assert len(spans("a " * 10 * MAX_HIGHLIGHTS, marks_of(word("a")))) == MAX_HIGHLIGHTS


@given(st.text())
def test_words_of_a_text_are_those_of_the_analyzer(text):
    for token in tokens(text):
        assert spans(text, marks_of(word(token)))


@given(st.text(), st.lists(st.text(alphabet="abİ_ -", max_size=5), min_size=1, max_size=4))
def test_spans_lie_in_the_text_and_do_not_overlap(noise, parts):
    text = noise + " ".join(parts)
    query = Or((Phrase("", ("a", "b")), Phrase("", ("b", "a", "b")), word("a"), Prefix("", "b")))
    found = spans(text, marks_of(query))
    assert all(0 <= begin < end <= len(text) for begin, end in found)
    assert all(before <= begin for (_, before), (begin, _) in pairwise(found))
    assert marked(text, found, "", "") == text
