"""What of an event is searched, and that no event does harm."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.core.limits import MIB
from sarit.search import document_maker
from sarit.search.analyzer import tokens
from sarit.search.document_maker import DocumentMaker
from sarit.search.field_values import (
    LEAST_KEY,
    MOST_KEY,
    first_key,
    keyword,
    number,
    order_key,
    ordered_ms,
    time_of,
    time_of_key,
    time_span,
)
from sarit.search.limits import MAX_DOCUMENT_TOKENS, MAX_TOKEN_CHARACTERS
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.query import ALL_TEXT

MAPPING = Mapping(
    (
        Field("message", Kind.TEXT),
        Field("level", Kind.KEYWORD),
        Field("took", Kind.NUMBER),
        Field("timestamp", Kind.TIME),
        Field("ok", Kind.BOOLEAN),
        Field("items.sku", Kind.KEYWORD),
        Field("a.b", Kind.NUMBER),
    ),
    "timestamp",
)
TIME = "2026-01-31T12:00:00.250Z"
TIME_MS = 1769860800250


def test_tokens_are_letters_and_digits_in_small_letters() -> None:
    assert tokens("Timeout of order_12: Straße") == ["timeout", "of", "order", "12", "straße"]
    assert tokens("in 東京で x") == ["in", "東", "京", "で", "x"]
    assert tokens("ΟΔΟΣ'Α") == ["οδοσ", "α"]
    assert tokens("ΟΔΟΣ") == ["οδοσ"], "the last sigma of a word is the same in a query of the word alone"
    assert tokens("x" * 500) == ["x" * MAX_TOKEN_CHARACTERS]
    assert tokens("a b c", 2) == ["a", "b"]
    assert tokens("\ud800a -> _") == ["a"]
    assert len(tokens("a " * MIB)) == MAX_DOCUMENT_TOKENS


@given(st.text())
def test_tokens_of_tokens_are_the_same(text) -> None:
    assert tokens(" ".join(tokens(text))) == tokens(text)
    " ".join(tokens(text)).encode()


def test_values_have_one_form() -> None:
    assert str(number(-0.0)) == "0.0"
    assert (number(10**400), number(float("nan")), number(7)) == (None, None, 7.0)
    assert keyword("é\ud800" + "x" * 300) == "é?" + "x" * 254
    assert time_of(TIME) == TIME_MS
    assert time_of("2026-01-31 13:00:00.250+01:00") == TIME_MS
    assert time_of("2026-01-31T12:00:00.250999999") == TIME_MS, "without a zone it is in UTC"
    assert (time_of(TIME_MS), time_of(12), time_of(True), time_of(float("nan"))) == (TIME_MS, None, None, None)
    assert (time_of("20260131"), time_of("2026-02-30"), time_of("2026-01-31T25:00Z")) == (None, None, None)
    assert time_span("1970-01-02") == (86_400_000, 2 * 86_400_000)
    assert time_span("1970-01-01T00:01Z") == (60_000, 120_000)
    assert time_span("1970-01-01T00:00:01Z") == (1000, 2000)
    assert time_span("1970-01-01T00:00:01.5Z") == (1500, 1501)


def test_order_keys_are_in_the_order_of_times_and_fit_into_64_bits() -> None:
    assert order_key(5, 3) == (5 << 20) + 3
    assert order_key(5, (1 << 20) + 3) == order_key(5, 3)
    times = [time_of("0001-01-01"), time_of("1850-02-03"), -1, 0, 1, time_of("9999-12-31")]
    keys = [order_key(time, number) for time in times for number in (0, 1, (1 << 20) - 1)]
    assert keys == sorted(set(keys))
    assert keys[0] > LEAST_KEY
    assert keys[-1] == MOST_KEY
    assert [time_of_key(key) for key in keys[::3]] == list(map(ordered_ms, times))
    assert list(map(ordered_ms, times))[1:-1] == times[1:-1]
    assert order_key(-6, 1 << 19) < first_key(-5) <= order_key(-5, 0) < order_key(-5, 1)


def test_a_document_has_the_values_of_its_fields_and_all_text() -> None:
    event = {
        "message": "It Timed out", "level": "ERROR", "took": 3, "timestamp": TIME, "ok": True, "none": None,
        "items": [{"sku": "A-1"}, {"sku": 5}, []], "a.b": 1.5, "more": {"deep": ["x y"]},
    }  # fmt: skip
    made = DocumentMaker(MAPPING).document(json.dumps(event).encode())
    assert made.texts["message"] == [["it", "timed", "out"]]
    assert made.texts[ALL_TEXT] == [
        ["it", "timed", "out"], ["error"], ["3"], tokens(TIME), ["a", "1"], ["5"], ["1", "5"], ["x", "y"],
    ]  # fmt: skip
    assert made.keywords == {"level": ["ERROR"], "items.sku": ["A-1", "5"]}
    assert made.numbers == {"took": [3.0], "a.b": [1.5]}
    assert (made.times, made.booleans, made.time_ms) == ({"timestamp": [TIME_MS]}, {"ok": [True]}, TIME_MS)
    assert made.problem == ""


def test_what_is_no_document_is_a_text() -> None:
    maker = DocumentMaker(MAPPING)
    for event, words in (
        (b"Plain text", ["plain", "text"]), (b'{"broken": ', ["broken"]), (b'"5"', ["5"]), (b"", []), (b"12", ["12"]),
    ):  # fmt: skip
        made = maker.document(event)
        assert (made.texts, made.problem, made.time_ms) == ({ALL_TEXT: [words]}, "", None)


def test_the_time_of_an_envelope_counts_where_the_document_has_none() -> None:
    maker = DocumentMaker(MAPPING)
    assert maker.document(bytes(Envelope(b"x y", event_time=5_999))).time_ms == 5
    assert maker.document(bytes(Envelope(json.dumps({"timestamp": TIME}), event_time=5_999))).time_ms == TIME_MS
    assert maker.document(bytes(Envelope(b"{}", event_time=None))).time_ms is None


def test_what_is_not_searched_is_counted_with_its_reason() -> None:
    maker = DocumentMaker(MAPPING)
    for event, problem in (
        (b"\xff\xfe x", document_maker.NOT_TEXT),
        (bytes(Envelope(b"x", key="k"))[:10], document_maker.DAMAGED_ENVELOPE),
        (b"[" + b'"a b",' * MIB + b"1]", document_maker.TOO_LONG),
        (b"[" + b"1," * 30_000 + b"1]", document_maker.TOO_MANY_VALUES),
        (b"[" + b"[]," * 30_000 + b"1]", document_maker.TOO_MANY_VALUES),
        (b"a " * 30_000, document_maker.TOO_MANY_VALUES),
        (b'["' + b"a " * 30_000 + b'"]', document_maker.TOO_MANY_VALUES),
        (b'{"took": "long"}', document_maker.OTHER_KIND),
        (b'{"timestamp": "yesterday"}', document_maker.OTHER_KIND),
        (b'{"timestamp": 5}', document_maker.OTHER_KIND),
        (b'{"ok": 1}', document_maker.OTHER_KIND),
        (b'{"took": true}', document_maker.OTHER_KIND),
    ):
        before = maker.problems[problem]
        assert maker.document(event).problem == problem
        assert maker.problems[problem] == before + 1
    assert repr(maker) == "<DocumentMaker, 12 events with problems>"


def test_an_event_of_a_schema_is_what_its_decoder_returns() -> None:
    def decode(payload):
        if payload == b"bad":
            raise Invalid("no")
        return {"level": payload.decode()}

    maker = DocumentMaker(MAPPING, decode)
    assert maker.document(b"WARN").keywords == {"level": ["WARN"]}
    assert maker.document(b"bad").problem == document_maker.NOT_DECODED


@pytest.mark.parametrize(
    "event",
    [
        b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"took": ' + b"9" * 5000 + b"}", b'{"took": 1e999}',
        b'{"took": NaN}', b'{"level": "\\ud800"}', b'{"message": "' + b"x" * 900_000 + b'"}', b"\0" * MIB,
        b"{" + b",".join(b'"f%d":1' % at for at in range(90_000)) + b"}", b'{"": {"": 1}, ".": 2, "a.": {"b": 1}}',
        b'{"items": {"sku": {"sku": 1}}}', b'{"a": [[[[[{"b": 1}]]]]]}',
    ],
)  # fmt: skip
def test_no_event_does_harm(event) -> None:
    began = time.monotonic()
    made = DocumentMaker(MAPPING).document(event)
    assert time.monotonic() - began < 20
    assert sum(map(len, made.texts[ALL_TEXT])) <= MAX_DOCUMENT_TOKENS
    assert all(value.encode() for value in made.keywords.get("level", ()))


@settings(max_examples=200)
@given(st.binary())
def test_any_bytes_are_a_document(event) -> None:
    DocumentMaker(MAPPING).document(event)
