"""No event that matches is left out by its bytes."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.client.search.query_matcher import QueryMatcher
from sarit.search.document_maker import DocumentMaker
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.memory_shards import matches
from sarit.search.prefilter import Prefilter
from sarit.search.query import ALL_TEXT, And, Equals, Exists, Not, Or, Phrase, Prefix, Term

MAPPING = Mapping((Field("text", Kind.TEXT), Field("word", Kind.KEYWORD)))
WORDS = st.sampled_from(["b", "bo", "bob", "k", "1e", "16", "inf", "100000", "true", "os", "K", "Bob x", "ö"])
LEAVES = st.one_of(
    st.builds(Term, st.sampled_from([ALL_TEXT, "text"]), WORDS),
    st.builds(Phrase, st.just(ALL_TEXT), st.tuples(WORDS, WORDS)),
    st.builds(Prefix, st.sampled_from([ALL_TEXT, "word"]), WORDS),
    st.builds(Equals, st.just("word"), WORDS),
)
QUERIES = st.one_of(
    LEAVES,
    st.builds(And, st.tuples(LEAVES, LEAVES)),
    st.builds(Or, st.tuples(LEAVES, LEAVES)),
    st.builds(lambda one, two: And((one, Not(two))), LEAVES, LEAVES),
)
VALUES = st.one_of(
    st.sampled_from(["bob", "Bob x", "\u212a", "bo\nb", "ö", "OS", 1e5, 1e16, float("inf"), 16, True]),
    st.text(max_size=4),
)
EVENTS = st.builds(
    lambda document, escaped: json.dumps(document, ensure_ascii=escaped).encode(errors="replace"),
    st.dictionaries(st.sampled_from(["text", "word", "other"]), VALUES, max_size=3),
    st.booleans(),
)


@settings(max_examples=400)
@given(QUERIES, st.lists(st.one_of(EVENTS, st.text(max_size=6).map(str.encode), st.binary(max_size=6)), max_size=8))
def test_a_matcher_finds_what_each_event_is_by_itself(query, events) -> None:
    maker = DocumentMaker(MAPPING)
    expected = [at for at, event in enumerate(events) if matches(query, maker.document(event))]
    assert QueryMatcher(query, MAPPING).match(events).places == expected


def test_only_words_that_are_needed_and_in_the_bytes_count() -> None:
    found = Prefilter(And((Term("", "timeout"), Or((Term("", "x"), Term("", "y"))), Not(Term("", "z")), Exists("n"))))
    assert repr(found) == "<Prefilter, 1 words>"
    assert found.may_match(b"a TimeOut")
    assert not found.may_match(b"x y z")
    assert found.may_match("ä".encode())
    assert found.may_match(b'"\\u0054imeout"')
    assert Prefilter(Term("", "16")).may_match(b"other")


def test_numbers_are_found_however_they_are_written() -> None:
    events = [b"[10000000000000000.0]", b'{"a": 1E16}', b"[1.6e1]"]
    assert QueryMatcher(Term(ALL_TEXT, "1e"), MAPPING).match(events).places == [0, 1]
    assert QueryMatcher(Term(ALL_TEXT, "16"), MAPPING).match(events).places == [0, 1, 2]


def test_what_a_decoder_makes_of_bytes_is_not_judged_by_them() -> None:
    matcher = QueryMatcher(Term(ALL_TEXT, "bob"), MAPPING, lambda payload: {"text": payload.decode()[::-1]})
    assert matcher.match([b"xbo bob", b"bo b"]).places == [0]
    assert matcher.match([b"BOB", b"Bob"[::-1]]).places == [0, 1]
