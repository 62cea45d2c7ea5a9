"""Texts of queries: what they mean, what is wrong with them, and that none does harm."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.search.field_values import keyword
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.memory_shards import matches
from sarit.search.query import ALL_TEXT, And, Equals, Everything, Exists, Not, Or, Phrase, Prefix, Range, Term
from sarit.search.query_parser import NOTHING, bind, fields_of, parse, parse_query, text_of_value
from tests.unit.search.strategies import DOCUMENTS, QUERIES

MAPPING = Mapping(
    (
        Field("text", Kind.TEXT), Field("word", Kind.KEYWORD), Field("number", Kind.NUMBER), Field("time", Kind.TIME),
        Field("flag", Kind.BOOLEAN), Field("odd name", Kind.KEYWORD),
    )
)  # fmt: skip
A, B, C = (Term(ALL_TEXT, word) for word in "abc")
DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("a", A), ("A b", And((A, B))), ("a AND b", And((A, B))), ("a OR b c", Or((A, And((B, C))))),
        ("(a OR b) c", And((Or((A, B)), C))), ("a -b", And((A, Not(B)))), ("a NOT b", And((A, Not(B)))),
        ("-a", And((Everything(), Not(A)))), ("NOT -a", A), ("a OR -b", Or((A, And((Everything(), Not(B)))))),
        ("-(a b)", And((Everything(), Not(And((A, B)))))), ("*", Everything()), ("a *", A), ("a OR *", Everything()),
        ("-*", NOTHING), ("a -*", NOTHING), ("a a", A), ("((a))", A), ("a (b c)", And((A, B, C))),
        ('"a b"', Phrase(ALL_TEXT, ("a", "b"))), ('"A"', A), ("a-b", Phrase(ALL_TEXT, ("a", "b"))),
        ("10.0.0.1", Phrase(ALL_TEXT, ("10", "0", "0", "1"))), ("con*", Prefix(ALL_TEXT, "con")),
        ("a -> b && ... () -", And((A, B))), ("a -- b", And((A, B))), ('"OR" a', And((Term(ALL_TEXT, "or"), A))),
        ("or", Term(ALL_TEXT, "or")), (r"a\:b", Phrase(ALL_TEXT, ("a", "b"))), (r"\-a", A),
        ("ORa", Term(ALL_TEXT, "ora")),
        ("text:a", Term("text", "a")), ('text:"A b"', Phrase("text", ("a", "b"))), ("text:*", Exists("text")),
        ("word:A-b", Equals("word", "A-b")), ('word:""', Equals("word", "")), ("word:Ab*", Prefix("word", "Ab")),
        ("text:(a OR b)", Or((Term("text", "a"), Term("text", "b")))), ('"odd name":x', Equals("odd name", "x")),
        (r"odd\ name:x", Equals("odd name", "x")), ("number:5", Equals("number", 5.0)),
        ("number:-5e1", Equals("number", -50.0)),
        ("number:>=5", Range("number", 5.0, None)), ("number:>5", Range("number", 5.0, None, with_low=False)),
        ("number:<5", Range("number", None, 5.0, with_high=False)),
        ("number:[1 TO 5}", Range("number", 1.0, 5.0, True, False)),
        ("number:[* TO *]", Exists("number")), ("number:(>1 <2)", And((Range("number", 1.0, None, with_low=False),
                                                                      Range("number", None, 2.0, with_high=False)))),
        ("word:{a TO *]", Range("word", "a", None, with_low=False)), ("flag:TRUE", Equals("flag", True)),
        ("time:1970-01-02", Range("time", DAY, 2 * DAY, True, False)),
        ("time:>1970-01-02", Range("time", 2 * DAY, None, True, False)),
        ("time:<=1970-01-02", Range("time", None, 2 * DAY, True, False)),
        ("time:<1970-01-02", Range("time", None, DAY, True, False)),
        ("time:[1970-01-02 TO 1970-01-03]", Range("time", DAY, 3 * DAY, True, False)),
        ("time:1970-01-01T00:00:00.5Z", Equals("time", 500)), ("time:1700000000000", Equals("time", 1700000000000)),
        ('time:>="1970-01-02 00:00"', Range("time", DAY, None, True, False)),
    ],
)  # fmt: skip
def test_texts_mean_queries(text, query) -> None:
    assert parse_query(text, MAPPING) == query


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the query is empty"), (" ", "the query is empty"), ("-> ...", "no word to search for"),
        ("a OR", "at character 5: a word is missing"), ("OR a", "at character 1: a word is missing before OR"),
        ("a AND OR b", "at character 7: a word is missing before OR"), ("NOT", "at character 4: a word is missing"),
        ("(a", r"at character 1: the \( has no \)"), ("a)", r"at character 2: there is a \) without"),
        ('a "b', 'at character 3: the " has no end'), ("a*b", "at character 2: a star stands at the end"),
        ("a*", 'at character 1: "a" and a star: give at least 2'), ("foo-ba*", "it has to be one word"),
        ("wrod:x", "there is no field wrod: there are word, odd name, number, flag, text and 1 more"),
        ("http://x", "a text with a colon needs double quotes"), ("word: x", "a value is missing right after word:"),
        ("number:x", 'at character 8: "x" of the field number is no number'), ("number:1e999", "is no number"),
        ("number:nan", "is no number"), ("number:1*", "the field is a number, which has no beginnings"),
        ("number:[1 5]", "a range has the form"), ("number:[1 TO 5", "a range has no end"),
        ("number:[ TO 5]", "a range has the form"), ("number:[1 TO ]", "a bound of a range is missing"),
        ("number:>", "a value is missing right after >"), ("text:>a", "the field text is a text, which has no ranges"),
        ("flag:yes", "is neither true nor false"), ("flag:>true", "has no ranges"), ("time:5", "is no time"),
        ("time:yesterday", "is no time"), ("text:->", "has no word to search for"),
        ('"":x', "the name of a field is missing"),
        ("a " * 2049, "4,098 characters, of at most 4,096"), ("a " * 257, "more than 256 words"),
        ('"' + "a " * 257 + '"', "more than 256 words"), ("(" * 33 + "a" + ")" * 33, "more than 32 groups"),
        ("x\n\u202e:y", "there is no field .*: there are"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text, why) -> None:
    with pytest.raises(Invalid, match=why) as raised:
        parse_query(text, MAPPING)
    assert "\u202e" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_unknown_fields_may_match_nothing() -> None:
    parsed = parse('nope:5 OR word:x -"other one":(a b)')
    assert fields_of(parsed) == {"nope", "word", "other one"}
    assert bind(parsed, MAPPING, unknown="nothing") == Equals("word", "x")
    assert bind(parsed, Mapping(), unknown="nothing") == NOTHING
    with pytest.raises(Invalid, match="there is no field nope: the events have no fields"):
        bind(parsed, Mapping())


def test_what_is_wrong_without_fields_is_found_before_there_are_some() -> None:
    for text in ("a*", "foo-ba*", "a OR", ""):
        with pytest.raises(Invalid):
            parse(text)


def rendered(query) -> str:
    """Return a text that means a query."""
    match query:
        case Everything():
            return "*"
        case And(parts):
            return f"({' AND '.join(map(rendered, parts))})"
        case Or(parts):
            return f"({' OR '.join(map(rendered, parts))})"
        case Not(part):
            return f"NOT {rendered(part)}"
    field = f"{query.field}:" if query.field else ""
    match query:
        case Term(_, token):
            return f"{field}{token}"
        case Phrase(_, words):
            return f'{field}"{" ".join(words)}"'
        case Prefix(_, beginning):
            return f"{field}{beginning}*"
        case Equals(_, value):
            return f"{field}{str(value).lower()}"
        case Exists():
            return f"{field}*"
        case Range(_, low, high, with_low, with_high):
            low, high = (_bound(query.field, bound) for bound in (low, high))
            return f"{field}{'[' if with_low else '{'}{low} TO {high}{']' if with_high else '}'}"


def _bound(field: str, value) -> str:
    if value is None:
        return "*"
    return f"1970-01-01T00:00:{value // 1000:02}.{value % 1000:03}Z" if field == "time" else str(value)


def _can_be_written(query) -> bool:
    match query:
        case And(parts) | Or(parts):
            return all(map(_can_be_written, parts))
        case Not(part):
            return _can_be_written(part)
        case Prefix(_, beginning):
            return len(beginning) > 1
        case Exists("none" | ""):
            return False
    return True


@settings(max_examples=500)
@given(QUERIES.filter(_can_be_written), st.lists(DOCUMENTS, max_size=6))
def test_a_query_that_is_written_and_parsed_means_the_same(query, documents) -> None:
    found = parse_query(rendered(query), MAPPING)
    for document in documents:
        assert matches(found, document) == matches(query, document)
    check_nots(found, inside=False)


def check_nots(query, inside: bool) -> None:
    """Check that each Not is a part of an And with a part that is none: engines know no other."""
    match query:
        case Not(part):
            assert inside
            check_nots(part, inside=False) if not isinstance(part, Not) else pytest.fail("a Not of a Not")
        case And(parts):
            assert any(not isinstance(part, Not) for part in parts)
            for part in parts:
                check_nots(part, inside=True)
        case Or(parts):
            for part in parts:
                check_nots(part, inside=False)


_SIGNS = st.text(alphabet='ab:*"()[]{}<>=-\\ TOR0', max_size=60)


_ODD: st.SearchStrategy[str] = st.one_of(st.text(max_size=40), _SIGNS)


@given(_ODD.filter(bool), _ODD)
def test_value_of_a_field_is_asked_for_as_it_is_whatever_signs_it_has(path, value) -> None:
    mapping = Mapping((Field(path, Kind.KEYWORD), Field("n", Kind.NUMBER)))
    wanted = Equals(path, keyword(value))
    assert parse_query(text_of_value(path, value), mapping) == wanted
    assert parse_query(f"(a OR b) {text_of_value(path, value)}", mapping) == And((Or((A, B)), wanted))


@settings(max_examples=500)
@given(st.one_of(st.text(max_size=60), _SIGNS, _SIGNS.map(lambda text: "number:" + text)))
def test_any_text_is_a_query_or_an_error(text) -> None:
    error = None
    try:
        bind(parse(text), MAPPING)
    except Invalid as raised:
        error = raised
    assert error is None or len(str(error)) < 500


@pytest.mark.parametrize(
    "text",
    ["(" * 4096, "-" * 4096, "NOT " * 1024, '"' * 4096, "[" * 4096, "\\" * 4096, "a:" * 2048, "a:(" * 1365, "*" * 4096,
     "(a OR " * 600, "-(" * 2048, "a:>" * 1365, "東" * 4096, "9" * 4096, "number:" + "9" * 4000],
)  # fmt: skip
def test_no_text_takes_long(text) -> None:
    began = time.monotonic()
    with suppress(Invalid):
        bind(parse(text), MAPPING)
    assert time.monotonic() - began < 5
