"""What a search looks for, and what it may cost."""

from __future__ import annotations

import json
import sys
import time

import pytest

from sarit.client.search.matchers import FieldMatcher, PatternMatcher, TextMatcher
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.core.extras import MissingExtra
from sarit.core.limits import MIB


def test_a_text_is_found_in_bytes_in_any_case_of_ascii() -> None:
    matcher = TextMatcher("Käse<b>")
    events = ["ein KäSE<B>!".encode(), "ein KÄSE<b>".encode(), b"\xff\x00k", b""]
    assert matcher.match(events).places == [0]
    assert TextMatcher("").match(events).places == [0, 1, 2, 3]
    with pytest.raises(Invalid, match="201 characters, of at most 200"):
        TextMatcher("x" * 201)


def test_a_pattern_is_found_in_bytes() -> None:
    events = [b"order 12\n", b"\xff\x00order 7\xff", b"order", b"ORDER 1"]
    assert PatternMatcher(r"order \d+").match(events).places == [0, 1]
    assert PatternMatcher(r"(?i)^order \d$").match(events).places == [3]
    assert PatternMatcher(r"\xff\x00").match(events).places == [1]


@pytest.mark.parametrize(
    "pattern", ["", "(", "(?=a)", r"(a)\1", "a{2000}", "(a{50}){50}", "(a?){900}a{900}b", "a{1001,}", "x" * 201]
)
def test_a_pattern_that_is_none_or_costs_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match="pattern"):
        PatternMatcher(pattern)


def test_a_pattern_without_the_extra_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="a search by regular expression needs packages.*arrow"):
        PatternMatcher("a")


@pytest.mark.parametrize("pattern", ["(a|aa)+$b", "(x+x+)+y", "(a?){28}(a?){2}b", ".*.*.*.*.*z", "[a-q][^u-z]{13}x"])
def test_no_pattern_takes_long(pattern: str) -> None:
    matcher, event = PatternMatcher(pattern), b"a" * MIB
    began = time.monotonic()
    matcher.match([event])
    assert time.monotonic() - began < 30  # seconds of a busy machine; an exponential one would take for ever


def test_of_a_long_event_the_beginning_is_matched_and_counted() -> None:
    matcher = PatternMatcher("(b{30}){2}")  # costs 600: the first 111 kB
    assert matcher.match([b"b" * 60 + b" " * MIB]).places == [0]
    found = matcher.match([b" " * MIB + b"b" * 60, b"short"])
    assert (found.places, found.partly) == ([], 1)


def test_a_field_of_a_document_has_a_value() -> None:
    document = {"id": 7, "ok": True, "name": "ann", "items": [{"sku": "x"}, {"sku": "5"}], "deep": {"n": 1.0}}
    event = json.dumps(document).encode()
    for path, value in (
        ("id", "7"), ("ok", "true"), ("name", "ann"), ("name", '"ann"'), ("items.1.sku", "5"), ("deep.n", "1"),
        ("deep", '{"n": 1}'),
    ):  # fmt: skip
        assert FieldMatcher(path, value).match([event]).places == [0], (path, value)
    for path, value in (
        ("id", "8"),
        ("ok", "1"),
        ("id", "true"),
        ("items.2.sku", "5"),
        ("none", "null"),
        ("id.x", "7"),
    ):
        assert FieldMatcher(path, value).match([event]).places == [], (path, value)


def test_a_field_is_found_in_the_payload_of_an_envelope_and_other_bytes_are_none() -> None:
    events = [b"", b"{", b'{"a": 1}', bytes(Envelope(b'{"a": 1}', key="k")), b"\xf5rest", b"[" * 100_000, b"\xff{"]
    assert FieldMatcher("a", "1").match(events).places == [2, 3]


def test_a_document_that_is_too_long_is_counted_and_not_parsed() -> None:
    long = b'{"a": 1, "b": "' + b"x" * MIB + b'"}'
    found = FieldMatcher("a", "1").match([long, b'{"a": 1}'])
    assert (found.places, found.partly) == ([1], 1)


@pytest.mark.parametrize("path", ["", "a..b", ".", "x" * 201])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        FieldMatcher(path, "1")
